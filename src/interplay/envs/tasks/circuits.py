"""Generates circuits: small modules with a rule drawn from a few families, each with a reference and a bench.

A row of kind `hardware` has `question`, `interface` (the module's header), `golden` (a right TopModule), `reference`
(the same as RefModule) and `bench`, which compares TopModule with it and prints `Mismatches: N in M samples`.
"""

from __future__ import annotations

import random
from typing import Any

from interplay.envs.splits import TRIES, split_of
from interplay.errors import ConfigError

# The value of y for the 4-bit inputs a and b; {k} is a 4-bit number, {s} is from 1 to 3.
_PLAIN = (
    ("the bitwise AND of a and b, exclusive-ored with {k}", "(a & b) ^ 4'd{k}"),
    ("the sum of a, b and {k}, without carry", "a + b + 4'd{k}"),
    ("a where a is less than {k}, else b", "(a < 4'd{k}) ? a : b"),
    ("the difference a - b where b is at least {k}, else a", "(b >= 4'd{k}) ? a - b : a"),
    ("a turned left by {s} bits, exclusive-ored with b", "((a << {s}) | (a >> (4 - {s}))) ^ b"),
    ("the bitwise OR of a shifted right by {s} and b with {k} added", "(a >> {s}) | (b + 4'd{k})"),
)
# The next value of the register y on the rising edge of clk, unless reset sets it to 0.
_CLOCKED = (
    ("grows by a, modulo 16, and starts again at {k} where b is 0", "(b == 0) ? 4'd{k} : y + a"),
    ("counts up by 1, and returns to 0 after {k}", "(y == 4'd{k}) ? 4'd0 : y + 4'd1"),
    ("keeps its value where a is less than {k}, else takes b", "(a < 4'd{k}) ? y : b"),
)
_PORTS = "input [3:0] a, input [3:0] b, output {reg}[3:0] y"
_BENCH = """`timescale 1ns/1ns
module tb();
  reg clk = 0, reset = 1;
  reg [3:0] a = 0, b = 0;
  wire [3:0] y_ref, y_dut;
  integer i, errors = 0, samples = 0;
  RefModule good1 ({ports}, .y(y_ref));
  TopModule top1 ({ports}, .y(y_dut));
  always #5 clk = ~clk;
  initial begin
    @(negedge clk); @(negedge clk);
    reset = 0;
    for (i = 0; i < 256; i = i + 1) begin
      {{a, b}} = {order};
      #1 samples = samples + 1;
      if (y_dut !== y_ref) errors = errors + 1;
      @(negedge clk);
    end
    $display("Mismatches: %0d in %0d samples", errors, samples);
    $finish;
  end
endmodule
"""


def draw(rng: random.Random, split: str) -> dict[str, Any]:
    for _ in range(TRIES):
        which, k, s = rng.randrange(len(_PLAIN) + len(_CLOCKED)), rng.randint(1, 14), rng.randint(1, 3)
        if split_of(f"circuit {which} {k} {s}") == split:
            break
    else:
        raise ConfigError(f"no circuit was found for the {split} split; expected another seed.")
    clocked = which >= len(_PLAIN)
    words, rule = (part.format(k=k, s=s) for part in (*_PLAIN, *_CLOCKED)[which])
    ports = ("input clk, input reset, " if clocked else "") + _PORTS.format(reg="reg " if clocked else "")
    if clocked:
        body = f"  always @(posedge clk)\n    if (reset) y <= 4'd0;\n    else y <= {rule};"
        what = f"On the rising edge of clk, y becomes 0 where reset is 1; else y {words}."
    else:
        body, what = f"  assign y = {rule};", f"y is {words}."
    interface = f"module TopModule ({ports});"
    golden = f"{interface}\n{body}\nendmodule\n"
    wired = (".clk(clk), .reset(reset), " if clocked else "") + ".a(a), .b(b)"
    bench = _BENCH.format(ports=wired, order="i * 8'd167 + 8'd5")
    row = {"question": f"Write the module TopModule. {what}", "interface": interface, "golden": golden, "bench": bench}
    return {**row, "reference": golden.replace("TopModule", "RefModule")}
