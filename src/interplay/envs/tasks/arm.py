"""The table of the robotics environment in MuJoCo: a hand on three slides, blocks, zones, and a camera above them."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from interplay.envs.picture import png
from interplay.envs.tasks.data import DataRow
from interplay.errors import ConfigError, EnvError

if TYPE_CHECKING:
    import numpy

Command = tuple[str, float, float]  # the command and, for a move, its target in metres

COLOURS = {"red": "1 0 0 1", "green": "0 .7 0 1", "blue": "0 .2 1 1", "yellow": "1 .9 0 1", "white": "1 1 1 1"}
TINTS = {"orange": "1 .6 .2 1", "purple": ".6 .3 .8 1", "cyan": ".2 .8 .8 1", "grey": ".4 .4 .4 1", "pink": "1 .6 .8 1"}
HALF = 0.02  # half the side of a block, in metres
HIGH, LOW = 0.16, 0.05  # heights of the hand above the table, in metres
GRASP = 0.03  # horizontal distance within which suction takes hold, in metres
STEPS = 400  # the most simulation steps for one command
SETTLE = 60  # simulation steps after letting go
SHARPEST = 512  # largest side of a picture, in pixels
_AXES = (("x", "1 0 0"), ("y", "0 1 0"), ("z", "0 0 1"))


class Scene:
    """Where everything is, in metres; hand and blocks as (x, y, z)."""

    __slots__ = ("blocks", "hand", "held")

    def __init__(self, hand: tuple[float, ...], blocks: dict[str, tuple[float, ...]], held: str | None) -> None:
        self.hand, self.blocks, self.held = hand, blocks, held


class Arm:
    """One MuJoCo model for all tables with the same number of blocks. States are passed in and out as bytes."""

    def __init__(self, blocks: int) -> None:
        self.mj = mujoco = _mujoco()
        self.names = list(COLOURS)[:blocks]
        self.model = mujoco.MjModel.from_xml_string(_xml(self.names))
        self.data = mujoco.MjData(self.model)
        self._kind = int(mujoco.mjtState.mjSTATE_INTEGRATION)
        self._size = mujoco.mj_stateSize(self.model, self._kind)
        self._renderer: Any = None
        self._known: tuple[bytes, Scene] | None = None

    def __deepcopy__(self, memo: object) -> Arm:
        return self  # it has no state

    def lay(self, row: DataRow) -> bytes:
        """The initial state of a table."""
        self.mj.mj_resetData(self.model, self.data)
        for name, (x, y) in row["blocks"].items():
            self._joint(name)[:3] = x / 100, y / 100, HALF
        for i, (x, y) in enumerate(row["zones"].values()):
            self.data.mocap_pos[i] = x / 100, y / 100, 0.001
        self.data.qpos[2] = self.data.ctrl[2] = HIGH
        self._simulate(SETTLE)
        return self._save()

    def run(self, state: bytes, commands: list[Command]) -> bytes:
        self._load(state)
        for what, x, y in commands:
            if what == "move":
                self._go(x, y, float(self.data.ctrl[2]))
            elif what in ("up", "down"):
                self._go(float(self.data.ctrl[0]), float(self.data.ctrl[1]), HIGH if what == "up" else LOW)
            elif what == "grip":
                self._grip()
            else:
                self.data.eq_active[:] = 0
                self._simulate(SETTLE)
        return self._save()

    def table(self, state: bytes) -> Scene:
        if self._known is None or self._known[0] is not state:
            self._load(state)
            hand = tuple(float(q) for q in self.data.qpos[:3])
            blocks = {name: tuple(float(q) for q in self._joint(name)[:3]) for name in self.names}
            held = next((name for i, name in enumerate(self.names) if self.data.eq_active[i]), None)
            self._known = (state, Scene(hand, blocks, held))
        return self._known[1]

    def picture(self, state: bytes, size: int) -> bytes:
        camera = self._camera(size)
        self._load(state)
        self.mj.mj_forward(self.model, self.data)
        camera.update_scene(self.data, camera="eye")
        pixels = camera.render()
        return png(pixels.shape[1], pixels.shape[0], (row.tobytes() for row in pixels))

    def _camera(self, size: int) -> Any:
        if self._renderer is None or self._renderer.height != size:
            made = self.mj.Renderer.__new__(self.mj.Renderer)
            made._mjr_context = made._gl_context = None  # otherwise a renderer that could not be made prints errors
            try:
                made.__init__(self.model, size, size)
            except Exception as error:  # the machine's OpenGL can raise anything
                raise EnvError(
                    f"MuJoCo cannot render here ({type(error).__name__}); install EGL or OSMesa, and set MUJOCO_GL to "
                    "egl or osmesa."
                ) from None
            self._renderer = made
        return self._renderer

    def _joint(self, name: str) -> numpy.ndarray:
        start = 3 + 7 * self.names.index(name)
        return self.data.qpos[start : start + 7]

    def _go(self, x: float, y: float, z: float) -> None:
        self.data.ctrl[:3] = x, y, z
        for _ in range(STEPS // 20):
            self._simulate(20)
            off = max(abs(float(self.data.qpos[i]) - float(self.data.ctrl[i])) for i in range(3))
            if off < 0.002 and float(abs(self.data.qvel[:3]).max()) < 0.01:
                break

    def _grip(self) -> None:
        """Suction takes the nearest block below a lowered hand, if it is near enough and no block is held."""
        x, y, z = (float(q) for q in self.data.qpos[:3])
        if z > (HIGH + LOW) / 2 or self.data.eq_active.any():
            return
        near = [(math.dist((x, y), tuple(self._joint(n)[:2])), i) for i, n in enumerate(self.names)]
        distance, which = min(near)
        if distance < GRASP:
            self.data.eq_active[which] = 1
            self._simulate(SETTLE)

    def _simulate(self, steps: int) -> None:
        self.mj.mj_step(self.model, self.data, steps)

    def _save(self) -> bytes:
        import numpy

        state = numpy.empty(self._size)
        self.mj.mj_getState(self.model, self.data, state, self._kind)
        return state.tobytes()

    def _load(self, state: bytes) -> None:
        import numpy

        self.mj.mj_setState(self.model, self.data, numpy.frombuffer(state).copy(), self._kind)


@lru_cache(maxsize=8)
def arm(blocks: int) -> Arm:
    """The arm for this number of blocks."""
    return Arm(blocks)


def _mujoco() -> Any:
    """Import MuJoCo, and Triton before it if it is installed. With `MUJOCO_GL=osmesa` MuJoCo loads a library with LLVM
    in it; if PyTorch imports Triton, which has its own LLVM, after that, the process ends with a segmentation fault."""
    with suppress(ImportError):
        import_module("triton")
    try:
        return import_module("mujoco")
    except ImportError:
        raise ConfigError("robotics needs MuJoCo: pip install 'interplay[robotics]'.") from None


def _xml(names: list[str]) -> str:
    bodies = "".join(
        f'<body name="{n}" pos="{0.1 * i} .2 {HALF}"><freejoint/><geom type="box" size="{HALF} {HALF} {HALF}" '
        f'mass=".05" friction="1 .05 .001" rgba="{COLOURS[n]}"/></body>'
        for i, n in enumerate(names)
    )
    zones = "".join(
        f'<body name="zone{i}" mocap="true"><geom type="cylinder" size=".03 .001" rgba="{tint}" contype="0" '
        'conaffinity="0"/></body>'
        for i, tint in zip(range(len(names)), TINTS.values(), strict=False)
    )
    welds = "".join(
        f'<weld body1="hand" body2="{n}" relpose="0 0 {HALF - LOW + 0.002} 1 0 0 0" active="false" solref=".01 1"/>'
        for n in names
    )
    slides = "".join(f'<joint name="{a}" type="slide" axis="{v}" damping="20"/>' for a, v in _AXES)
    motors = "".join(f'<position joint="{a}" kp="400" kv="30"/>' for a, _ in _AXES)
    return (
        '<mujoco><option timestep="0.005"/><worldbody>'
        '<light pos="0 0 1.5"/><camera name="eye" pos="0 -.7 .9" xyaxes="1 0 0 0 .79 .61"/>'
        '<geom type="plane" size=".6 .6 .1" rgba=".8 .7 .5 1" friction="1 .05 .001"/>'
        f'<body name="hand" gravcomp="1">{slides}<geom type="cylinder" size=".012 .01" mass=".3" contype="0" '
        f'conaffinity="0" rgba=".2 .2 .2 1"/></body>{bodies}{zones}</worldbody>'
        f"<equality>{welds}</equality><actuator>{motors}</actuator>"
        f'<visual><global offwidth="{SHARPEST}" offheight="{SHARPEST}"/></visual></mujoco>'
    )
