"""Answers that try to earn rewards by cheating, or to bring the machine down, when a library or a referee reads them:
functions, queries, formulas, circuits. Each must earn nothing.

`{canary}` is a file outside the jail.
"""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HostileAnswer:
    kind: str
    name: str
    text: str
    long: bool = False  # it runs until a limit on time


A = HostileAnswer
TESTS = ["assert add(1, 2) == 3", "assert candidate(2, 5) == 7", "assert add([1], [2]) == [1, 2]"]
REPORT = "json.dumps(dict(built=True, loaded=True, trouble='', passed=[True] * 3, errors=0, answers=['a', 'b', 'c'], raised=False))"

# Programs that should define add(a, b).
FUNCTIONS = [
    A("functions", "leaving early", "import sys\ndef add(a, b): return 0\nsys.exit(0)"),
    A("functions", "leaving when called", "import os\ndef add(a, b): os._exit(0)"),
    A("functions", "leaving by exception", "def add(a, b): raise SystemExit(0)"),
    A("functions", "equal to everything", "class E:\n    def __eq__(s, o): return True\n    def __bool__(s): return True\n    def __hash__(s): return 0\ndef add(a, b): return E()"),
    A("functions", "a list equal to everything", "class L(list):\n    def __eq__(s, o): return True\ndef add(a, b): return L()"),
    A("functions", "a number equal to everything", "class N(int):\n    def __eq__(s, o): return True\ndef add(a, b): return N(0)"),
    A("functions", "no assertions", "import builtins\nbuiltins.AssertionError = ZeroDivisionError\ndef add(a, b): return 0"),
    A("functions", "always the same", "def add(a, b): return 3"),
    A("functions", "never ending", "def add(a, b):\n    while True: pass", long=True),
    A("functions", "sleeping", "import time\ndef add(a, b): time.sleep(1000)", long=True),
    A("functions", "an answer without end", "def add(a, b):\n    while True: yield 1", long=True),
    A("functions", "an enormous answer", "def add(a, b): return [0] * 10**9"),
    A("functions", "a deep answer", "def add(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x"),
    A("the referee", "an interruption", "import os\ntry: os.kill(os.getppid(), 2)\nexcept OSError: pass\ndef add(a, b):\n    try: os.kill(os.getppid(), 2)\n    except OSError: pass\n    return 0"),
    A("the referee", "killing it", "import os\ndef add(a, b):\n    for p in range(1, 50):\n        for s in (2, 9, 19):\n            try:\n                if p != os.getpid(): os.kill(p, s)\n            except OSError: pass\n    return 0"),
    A("the referee", "stopping its group", "import os\ndef add(a, b):\n    os.killpg(0, 9)\n    return 0"),
    A("the referee", "its report on every descriptor", f"import json, os, struct\nsaid = {REPORT}.encode()\ndef add(a, b):\n    for fd in range(64):\n        for data in (said + b'\\n', struct.pack('I', len(said)) + said):\n            try: os.write(fd, data)\n            except OSError: pass\n    return None"),
    A("the referee", "nonsense on every descriptor", "import os\nos.closerange(0, 3)\ndef add(a, b):\n    for fd in range(64):\n        try: os.write(fd, b'\\xff' * 64)\n        except OSError: pass\n    return 0"),
    A("the referee", "half an answer", "import os, struct, time\ndef add(a, b):\n    for fd in range(3, 64):\n        try: os.write(fd, struct.pack('I', 1000) + b'[')\n        except OSError: pass\n    time.sleep(1000)", long=True),
    A("the referee", "an answer of four gigabytes", "import os\ndef add(a, b):\n    for fd in range(3, 64):\n        try: os.write(fd, b'\\xff\\xff\\xff\\xff')\n        except OSError: pass\n    return 0"),
    A("the referee", "a number without end", "def add(a, b): return 10 ** 10 ** 7", long=True),
    A("the referee", "tags it does not know", "import json, os, struct\ndef add(a, b):\n    for y in ({'x': 1}, {'n': 'exec'}, {'h': 0, 'f': 1}, {'t': None}, {'s': [[1]]}):\n        said = json.dumps(['ok', y, []]).encode()\n        for fd in range(3, 64):\n            try: os.write(fd, struct.pack('I', len(said)) + said)\n            except OSError: pass\n    return 0"),
    A("the referee", "its caller", "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f.f_back: f = f.f_back\n    return 3 if 'tests' in str(f.f_globals) + str(f.f_locals) else 0"),
    A("the referee", "the tests in memory", "import gc\ndef add(a, b): return 3 if any(isinstance(o, dict) and 'tests' in o for o in gc.get_objects()) else 0"),
    A("the referee", "the tests in memory, started again", "import gc, os\nseen = any(isinstance(o, (list, tuple)) and any(isinstance(x, str) and 'assert' in x and '(1, 2)' in x for x in o) for o in gc.get_objects())\ndef add(a, b):\n    if not seen: os._exit(0)\n    return 3"),
    A("the referee", "filling its memory", "def add(a, b): return 'x' * (90 << 20)"),
]  # fmt: skip

LOOP = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
LONG_A, LONG_B, LONGER = (
    f"replace(hex(zeroblob({n})), '0', '{c}')" for n, c in ((15000, "a"), (15000, "b"), (200000, "aa"))
)
SQLITE = [
    A("SQLite: writing", "insert", "INSERT INTO customer VALUES (99, 'x', 'y', 1)"),
    A("SQLite: writing", "update", "UPDATE customer SET age = 1"),
    A("SQLite: writing", "delete", "DELETE FROM customer"),
    A("SQLite: writing", "drop", "DROP TABLE customer"),
    A("SQLite: writing", "create as", "CREATE TEMP TABLE t AS SELECT 1"),
    A("SQLite: writing", "attach", "ATTACH DATABASE 'other.db' AS other"),
    A("SQLite: writing", "attach a file outside", "ATTACH DATABASE '{canary}' AS other"),
    A("SQLite: writing", "vacuum into", "VACUUM INTO 'copy.db'"),
    A("SQLite: writing", "pragma", "PRAGMA writable_schema = 1"),
    A("SQLite: writing", "returning", "DELETE FROM customer RETURNING *"),
    A("SQLite: writing", "two statements", "SELECT 1; DELETE FROM customer"),
    A("SQLite: writing", "explain", "EXPLAIN DELETE FROM customer"),
    A("SQLite: reading", "extension", "SELECT load_extension('evil')"),
    A("SQLite: reading", "a file outside", "SELECT readfile('{canary}')"),
    A("SQLite: reading", "pragma functions", "SELECT * FROM pragma_database_list, (SELECT load_extension('x'))"),
    A("SQLite: reading", "chance", "SELECT random(), hex(randomblob(4))"),
    A("SQLite: reading", "chance, quoted", 'SELECT "random"()'),
    A("SQLite: reading", "the clock", "SELECT CURRENT_TIMESTAMP, date('now')"),
    A("SQLite: time and memory", "the audit's trim", "SELECT " + ", ".join([f"length(trim({LONG_A}, {LONG_B} || 'a'))"] * 20), long=True),
    A("SQLite: time and memory", "trim from the left", "SELECT " + ", ".join([f"length(ltrim({LONG_A}, {LONG_B} || 'a'))"] * 20), long=True),
    A("SQLite: time and memory", "replace without end", "SELECT length(replace(replace(replace(hex(zeroblob(400000)), '0', 'aaaaaaaaaa'), 'a', 'bbbbbbbbbb'), 'b', 'cccc'))"),
    A("SQLite: time and memory", "one large group", LOOP + "SELECT group_concat(hex(zeroblob(1000)) || i) FROM n"),
    A("SQLite: time and memory", "instr", "SELECT " + ", ".join([f"instr({LONGER}, substr({LONGER}, 1, 200000) || 'b')"] * 20), long=True),
    A("SQLite: time and memory", "repeated characters", "SELECT " + ", ".join(["length(printf('%.*c', 2000000000, 'x'))"] * 9)),
    A("SQLite: time and memory", "recursion", LOOP + "SELECT count(*) FROM n"),
    A("SQLite: time and memory", "recursion, sorted", LOOP + "SELECT i FROM n ORDER BY -i LIMIT 1"),
    A("SQLite: time and memory", "recursion that doubles", "WITH RECURSIVE t(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM t) SELECT length(x) FROM t"),
    A("SQLite: time and memory", "cross join", "SELECT count(*) FROM " + ", ".join(f"purchase AS p{i}" for i in range(12))),
    A("SQLite: time and memory", "one large value", "SELECT zeroblob(1000000000)"),
    A("SQLite: time and memory", "deep", "SELECT " + "(" * 5000 + "1" + ")" * 5000),
    A("SQLite: time and memory", "many rows", LOOP + "SELECT i FROM n LIMIT 20000"),
    A("SQLite: time and memory", "rows of a megabyte", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9000) SELECT i, hex(zeroblob(400000)) FROM n"),
    A("SQLite: time and memory", "json", "SELECT json_array_length(json_group_array(json_array(i, i, i))) FROM (" + LOOP + "SELECT i FROM n LIMIT 9000000)"),
]  # fmt: skip
DUCKDB = [
    A("DuckDB: writing", "the audit's log", "WITH q AS (COPY (SELECT 1) TO '{database}.wal' (FORMAT csv)) SELECT 1"),
    A("DuckDB: writing", "over the database", "WITH q AS (COPY (SELECT 'x') TO '{database}' (FORMAT csv)) SELECT 1"),
    A("DuckDB: writing", "copy", "COPY customer TO '{database}.csv'"),
    A("DuckDB: writing", "insert in a part", "WITH q AS (INSERT INTO customer SELECT * FROM customer RETURNING *) SELECT * FROM q"),
    A("DuckDB: writing", "delete", "DELETE FROM purchase"),
    A("DuckDB: writing", "create", "CREATE TABLE x AS SELECT 1"),
    A("DuckDB: writing", "attach", "ATTACH 'x.duckdb'"),
    A("DuckDB: writing", "export", "EXPORT DATABASE 'x'"),
    A("DuckDB: writing", "checkpoint", "FORCE CHECKPOINT"),
    A("DuckDB: writing", "settings", "SET enable_external_access = true"),
    A("DuckDB: reading", "where it lies", 'SELECT path FROM "duckdb_databases"()'),
    A("DuckDB: reading", "where it lies, as a view", "SELECT * FROM duckdb_databases"),
    A("DuckDB: reading", "where it lies, by pragma", "SELECT * FROM pragma_database_list"),
    A("DuckDB: reading", "where it lies, from a string", "SELECT * FROM query('SELECT path FROM duckdb_databases()')"),
    A("DuckDB: reading", "a file outside", "SELECT * FROM read_text('{canary}')"),
    A("DuckDB: reading", "a file outside, as a table", "SELECT * FROM '{canary}'"),
    A("DuckDB: reading", "the files of the machine", "SELECT * FROM glob('/*')"),
    A("DuckDB: reading", "variables", "SELECT getenv('HOME')"),
    A("DuckDB: reading", "chance, quoted", 'SELECT "random"()'),
    A("DuckDB: reading", "chance, after a comment", "SELECT random/* */()"),
    A("DuckDB: reading", "chance, from a string", "SELECT * FROM query('SELECT random()')"),
    A("DuckDB: reading", "a sample", "SELECT * FROM customer USING SAMPLE 2"),
    A("DuckDB: reading", "the clock", "SELECT now(), current_date"),
    A("DuckDB: time and memory", "a join", "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 1", long=True),
    A("DuckDB: time and memory", "a list", "SELECT len(range(300000000))"),
    A("DuckDB: time and memory", "a string that doubles", "WITH RECURSIVE t(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM t) SELECT length(x) FROM t"),
    A("DuckDB: time and memory", "one string", "SELECT md5(repeat('x', 2000000000))"),
    A("DuckDB: time and memory", "a group", "SELECT array_agg(a.range) FROM range(100000) a, range(100000) b", long=True),
    A("DuckDB: time and memory", "rows of a megabyte", "SELECT repeat('x', 1000000) FROM range(9000)"),
]  # fmt: skip
FORMULAS = [
    A("formulas: time", "a tower", "9**9**9"),
    A("formulas: time", "a tower in LaTeX", "9^{9^{9}}"),
    A("formulas: time", "a power", "2^{99999999999}"),
    A("formulas: time", "a factorial", "((9!)!)!"),
    A("formulas: time", "polynomials", "(x+1)^{4000} - (x-1)^{4000}", long=True),
    A("formulas: time", "a sum", "\\sum_{k=1}^{10^{9}} \\frac{1}{k}", long=True),
    A("formulas: time", "a product", "\\prod_{n=1}^{1000000} n", long=True),
    A("formulas: time", "an integral", "\\int_0^1 \\sin(\\sin(\\sin(\\sin(x^{x^x})))) dx", long=True),
    A("formulas: time", "brackets", "(" * 300),
    A("formulas: time", "fractions", "\\frac{" * 100),
    A("formulas: time", "digits", "1" * 399),
    A("formulas: code", "a system call", "__import__('os').system('touch {canary}.new')"),
    A("formulas: code", "in a box of LaTeX", "\\text{__import__('os')._exit(0)}"),
    A("formulas: code", "by a class", "().__class__.__base__.__subclasses__()"),
    A("formulas: code", "by a function", "exec(\"import os; os.write(1, b'true'); os._exit(0)\")"),
    A("formulas: code", "by a symbol", "Symbol.__init__.__globals__['sys'].exit(0)"),
    A("formulas: code", "by an operator", "\\operatorname{eval}(\\text{1})"),
]  # fmt: skip

# Circuits that should be an inverter, compared with a reference by a bench.
DESIGN = "module TopModule(input a, output b);\n  assign b = {};\n{}\nendmodule"
CIRCUITS = [
    A("circuits", "a count of its own", DESIGN.replace("{}", "0", 1).replace("{}", '  initial begin $display("Mismatches: 0 in 9 samples"); $finish; end')),
    A("circuits", "ending the bench", DESIGN.replace("{}", "0", 1).replace("{}", "  initial $finish;")),
    A("circuits", "the reference", DESIGN.replace("{}", "tb.good.b", 1).replace("{}", "")),
    A("circuits", "the bench's wires", DESIGN.replace("{}", "0", 1).replace("{}", "  initial force tb.wrong = 0;")),
    A("circuits", "a file outside", DESIGN.replace("{}", "0", 1).replace("{}", '`include "{canary}"')),
    A("circuits", "memory from a file", DESIGN.replace("{}", "0", 1).replace("{}", '  reg m [0:9]; initial $readmemh("{canary}", m);')),
    A("circuits", "never ending", DESIGN.replace("{}", "0", 1).replace("{}", "  reg c; initial c = 0; always @(c) c = #0 ~c;"), long=True),
    A("circuits", "much memory", DESIGN.replace("{}", "0", 1).replace("{}", "  reg [1023:0] m [0:67108863]; initial m[0] = 1;")),
    A("circuits", "a module inside itself", "module TopModule(input a, output b);\n  TopModule t(a, b);\nendmodule"),
    A("circuits", "endless parts", DESIGN.replace("{}", "0", 1).replace("{}", "  genvar i; generate for (i = 0; i < 1 << 30; i = i + 1) begin: g wire w; end endgenerate"), long=True),
]  # fmt: skip
BENCHES = [
    A("test benches", "a file outside", 'module tb; integer f; initial begin f = $fopen("{canary}", "r"); if (f) $display("PASS"); $finish; end endmodule'),
    A("test benches", "writing a file outside", 'module tb; integer f; initial begin f = $fopen("{canary}", "w"); if (f) begin $fdisplay(f, "gone"); $display("PASS"); end $finish; end endmodule'),
    A("test benches", "a command", 'module tb; initial begin $system("cat {canary} && echo PASS"); $finish; end endmodule'),
    A("test benches", "never ending", "module tb; initial forever #1; endmodule", long=True),
    A("test benches", "never ending in no time", "module tb; reg c = 0; always c = ~c; endmodule", long=True),
    A("test benches", "output without end", 'module tb; initial forever #1 $display("PASS PASS PASS PASS PASS PASS PASS"); endmodule'),
    A("test benches", "filling the disk", 'module tb; integer f; initial begin f = $fopen("x"); forever #1 $fdisplay(f, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); end endmodule', long=True),
]  # fmt: skip
REFERENCE = "module Reference(input a, output b);\n  assign b = ~a;\nendmodule"
BENCH = """module tb;
  reg a; wire b, r; integer wrong, n;
  TopModule top(a, b); Reference good(a, r);
  initial begin
    wrong = 0;
    for (n = 0; n < 8; n = n + 1) begin a = n % 2; #1 if (b !== r) wrong = wrong + 1; end
    $display("Mismatches: %0d in %0d samples", wrong, n);
    $finish;
  end
endmodule"""
ANSWERS = [*FUNCTIONS, *SQLITE, *DUCKDB, *FORMULAS, *CIRCUITS, *BENCHES]
