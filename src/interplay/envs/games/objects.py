"""The objects of the word games: their properties, the questions about them, and how they are drawn.

Used by twenty questions, taboo and the spy. A statement is one of `QUESTIONS` with its answer, written as a sentence.
Scripted players say and understand only these statements.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from interplay.envs.speech import heard
from interplay.envs.splits import TRIES, split_of, split_of_task
from interplay.errors import ConfigError
from interplay.types import seed_of

LONGEST = 80  # the largest number of characters in a clue
QUESTIONS = {
    "alive": "Is it alive?",
    "animal": "Is it an animal?",
    "plant": "Is it a plant or a part of one?",
    "person": "Is it a person?",
    "eaten": "Do people eat or drink it?",
    "big": "Is it bigger than a person?",
    "hand": "Does it fit in one hand?",
    "flies": "Can it fly?",
    "water": "Is it usually in or on water?",
    "legs": "Does it have legs?",
    "fur": "Does it have fur?",
    "eggs": "Does it lay eggs?",
    "kept": "Do people keep it at home or on a farm?",
    "danger": "Is it dangerous?",
    "sweet": "Does it taste sweet?",
    "tree": "Does it grow on a tree?",
    "made": "Is it made by people?",
    "power": "Does it need electricity, a battery or fuel?",
    "wheels": "Does it have wheels?",
    "metal": "Is it mostly made of metal?",
    "wood": "Is it mostly made of wood or paper?",
    "soft": "Is it soft?",
    "round": "Is it round?",
    "music": "Does it make music?",
    "worn": "Do people wear it?",
    "kitchen": "Is it usually in a kitchen?",
    "write": "Is it used for reading or writing?",
    "sport": "Is it used in a sport or game?",
    "rides": "Does it carry people?",
    "cuts": "Does it cut?",
    "hot": "Is it hot, or used to heat?",
    "sky": "Is it seen in the sky?",
    "place": "Is it a building or a place?",
    "white": "Is it usually white?",
    "red": "Is it usually red or orange?",
    "yellow": "Is it usually yellow?",
    "green": "Is it usually green?",
    "long": "Is it long and thin?",
    "clean": "Is it used for washing or cleaning?",
    "light": "Does it give light?",
    "holds": "Is it made to hold other things?",
    "cold": "Is it cold, or at home in the cold?",
}

# The properties that the objects of a line share, then each object with its other properties.
_TABLE = """
alive animal legs fur: dog kept, cat kept soft, lion danger big yellow, tiger danger big red, bear danger big
alive animal legs fur: polar bear danger big white cold, wolf danger, fox red, rabbit kept soft hand white, mouse hand
alive animal legs fur: squirrel hand red, cow kept big, sheep kept soft white, goat kept white, horse kept big rides
alive animal legs fur: camel big rides yellow, monkey, giraffe big yellow long, deer big, bat flies hand
alive animal legs fur: otter water, hamster kept hand soft, panda big white
alive animal legs: elephant big rides, pig kept, hippo big water danger, rhino big danger, human person
alive animal legs eggs flies: eagle danger sky, owl, duck water kept, swan water white, parrot kept green, pigeon hand
alive animal legs eggs flies: bee hand yellow danger kept, butterfly hand soft, mosquito hand danger
alive animal legs eggs flies: stork white long, gull water white sky
alive animal legs eggs: chicken kept eaten, ostrich big, penguin water cold, turtle water round, frog water green hand
alive animal legs eggs: crocodile water green danger big long, spider hand danger, ant hand, lizard hand green long
alive animal legs eggs: crab water hand red eaten, lobster water red eaten
alive animal water: whale big, dolphin, shark big danger eggs, octopus eggs soft, jellyfish soft danger eggs
alive animal water eggs: goldfish kept hand red, salmon eaten red, eel long eaten, herring eaten hand
alive animal eggs: snake danger long, snail hand round, worm hand long soft
alive plant: oak big, pine big green, rose red hand, tulip hand, sunflower yellow long, cactus green danger
alive plant: grass green soft long, moss green soft, fern green, seaweed water green eaten, bamboo big green long
alive plant: palm big long, ivy green kept long, water lily water white round
plant eaten tree: apple sweet hand round red, pear sweet hand green, orange sweet hand round red soft, lemon hand yellow
plant eaten tree: plum sweet hand round soft, peach sweet hand round soft yellow
plant eaten tree: banana sweet hand yellow long soft, coconut round white, walnut hand round, olive hand green round
plant eaten tree: date sweet hand, mango sweet hand yellow soft
plant eaten: strawberry sweet hand red soft, grape sweet hand round green soft, melon sweet round
plant eaten: pineapple sweet yellow
plant eaten: tomato hand round red soft, potato hand kitchen, carrot hand red long, onion hand round kitchen
plant eaten: cucumber green long, lettuce green soft, cabbage green round, pumpkin round red
plant eaten: corn hand yellow long, pea hand round green, bean hand long green, rice hand white kitchen, pepper hand red
plant eaten: leek green white long
eaten kitchen: egg white hand round, milk white cold, honey sweet yellow
made eaten kitchen: bread soft, butter soft yellow hand, cheese yellow, soup hot
made eaten kitchen: cake sweet soft, cookie sweet round hand, chocolate sweet hand, sugar sweet white
made eaten kitchen: salt white, ice cream sweet cold soft, pizza hot round, sausage hot long hand
made eaten kitchen: juice sweet cold, pancake sweet round hot soft, noodles hot long soft, beer yellow cold, wine red
made eaten: candy sweet hand, popcorn white hand soft, jam sweet red kitchen soft
made kitchen: knife cuts metal hand danger, spoon metal hand, plate round white, cup hand holds
made kitchen: pot metal hot holds, pan metal hot round, kettle power hot holds, stove power hot metal danger
made kitchen: oven power hot metal danger big, fridge power cold big holds, freezer power cold holds, toaster power hot
made kitchen: bottle holds long, glass hand holds round, bowl round holds, sink water metal clean
made kitchen: dishwasher power clean
made kitchen: blender power cuts
made wood: table legs kitchen, chair legs, door big, pencil write hand long, book write, newspaper write soft
made wood: ladder big long, broom clean long, match hand hot light danger long, barrel round holds big
made wood: guitar music, piano music big legs, drum music round, baseball bat sport long
made wood: chess board sport, cupboard big holds, box holds, envelope holds hand write, raft water rides big
made wood: spinning top hand sport round, clothes peg hand
made metal: key hand, coin hand round, nail hand long, hammer, saw cuts danger, scissors cuts hand
made metal: sword cuts danger long, bell music round, trumpet music, flute music long
made metal: anchor water big, chain long, bucket holds round, bathtub water big clean white, needle hand long danger
made metal: ring worn hand round, crown worn round, helmet worn sport round, medal worn hand round sport
made metal: can hand holds kitchen round
made power: television light big, computer write, telephone hand, lamp light hot, flashlight light hand long
made power: radio music
made power: clock round, washing machine clean big, vacuum cleaner clean wheels, hair dryer hot hand
made power: iron hot metal clean, heater hot, satellite sky metal, robot metal legs
made power: watch worn hand round, drill metal danger hand, lawn mower wheels cuts danger, microphone hand long
made power wheels rides big: car metal, bus metal red, truck metal holds, train metal long
made power wheels rides: motorcycle metal danger, scooter, tractor big kept, fire truck big red metal water
made power rides big: airplane metal flies sky wheels, helicopter metal flies sky
made power rides big: rocket flies sky danger hot long metal
made power rides big: ship metal water, submarine metal water danger, elevator metal
made power rides big: hot air balloon flies sky round hot
made wheels rides: bicycle metal, skateboard sport wood, roller skates sport worn, stroller kept, wheelchair metal legs
made rides: sled wood sport cold, surfboard sport water long, canoe water wood long, sailing boat water big, swing sport
made worn soft: shirt, trousers long, socks hand, hat round
made worn: shoes, boots water, glasses hand, belt long, necklace hand round long, wedding veil white soft
made soft: pillow white, blanket big, mattress big white, towel clean, sponge clean hand yellow
made soft: teddy bear hand fur legs
made soft: tent big holds, flag long, curtain big long, carpet big kept, balloon round flies hand red
made sport: football round, tennis ball round hand yellow soft, golf ball round hand white, kite flies sky
made sport: skis long cold, dice hand white, puck hand round cold, chess king hand wood
made: soap clean hand, toothbrush clean hand long, comb hand long, mirror, candle light hot hand long
made: umbrella round water, rope long, window big, ball pen write hand long, eraser hand soft white
made: bag holds, wallet holds hand, tire round, brick red hand, paper airplane flies hand wood
made place big: house, church music, school write, castle holds, lighthouse light water
made place big: bridge long, hospital clean, stadium sport round, swimming pool water sport, library write wood
made place big: airport sky, prison danger, igloo cold white round
place big: mountain sky, river water long, sea water danger, desert hot yellow danger, forest plant green alive
place big: island water round, volcano hot danger red, beach water yellow, cave, glacier cold white
sky big: sun light hot round yellow danger, moon light round white, cloud white soft, rainbow round, star light
big sky: lightning light danger, storm danger water, snowfall white cold, rain water
hand: stone, snowflake white cold sky, ice cube cold water, feather soft, shell water, pearl round white water
hand: gold nugget metal yellow, leaf plant green tree, pine cone plant tree, acorn plant tree round
alive animal person legs: baby soft kept, cook kitchen, singer music
alive animal person legs: pilot flies, sailor water, teacher write, footballer sport, firefighter danger red hot
"""


def _objects() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for line in _TABLE.strip().splitlines():
        shared, _, names = line.partition(":")
        for entry in names.split(","):
            words = entry.split()
            # The name is what comes before the first attribute.
            cut = next((i for i, word in enumerate(words) if i and word in QUESTIONS), len(words))
            found[" ".join(words[:cut])] = frozenset(shared.split()) | frozenset(words[cut:])
    return found


OBJECTS = _objects()
_SORTED = sorted(OBJECTS)


@lru_cache(maxsize=4096)
def draw(seed: int, count: int) -> tuple[tuple[str, ...], str]:
    """`count` objects and the secret one among them. No draw of one split is a draw of another."""
    rng, split = random.Random(seed), split_of_task(seed)
    for _ in range(TRIES):
        names = tuple(sorted(rng.sample(_SORTED, count)))
        secret = rng.choice(names)
        if split_of(f"{secret}: {names}") == split:
            return names, secret
    raise ConfigError(f"no draw of {count} objects was found for the {split} split; expected a larger number.")


_ALIKE = str.maketrans("асеорхуіјѕԁһԛԝαεινορτυχκ", "aceopxyijsdhqwaeivoptuxk")  # Cyrillic and Greek letters


def names_one(text: str, words: Iterable[str]) -> bool:
    """Whether a text contains one of the words or its plural, also in parts (`d o g`, `do-g`), in letters of another
    script that look alike, or backwards, if it has at least four letters (`pot` backwards is another word)."""
    plain = unicodedata.normalize("NFKD", text).casefold().translate(_ALIKE)
    said = re.findall(r"[a-z0-9]+", "".join(c for c in plain if not unicodedata.combining(c)))
    for word in words:
        name = re.sub(r"[^a-z0-9]+", "", word.lower())
        wanted = {name, f"{name}s", *([name[::-1], f"{name}s"[::-1]] if len(name) >= 4 else [])}
        for i in range(len(said)):
            joined = ""
            for part in said[i : i + len(name) + 1]:
                joined += part
                if joined in wanted:
                    return True
    return False


_COUNTED = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty thirty forty fifty sixty hundred"
)
_ORDERED = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth last next previous middle half "
    "alphabet alphabetical alphabetically letter letters vowel vowels consonant syllable syllables spelt spelled list "
    "listed position order begin begins start starts initial between left right"
)
_PLACE = re.compile(rf"\b(?:{'|'.join((_COUNTED + ' ' + _ORDERED).split())}|[ivx]{{2,}}|\w+(?:teenth|tieth))\b")


def points_at_a_place(text: str) -> bool:
    """Whether a clue tells where an object stands in a list, or how its name is written, instead of what it is.

    Such clues are numbers in any script, words that count or order, letters and spelling, and tallies (a word or sign
    that is repeated). Everybody who sorts the list gets the same order, so each of these could name a place in it.
    """
    plain = text.casefold()
    words = re.findall(r"[^\W_]+", plain)
    tally = any(words.count(word) > 2 for word in words) or bool(re.search(r"([^\w\s])\s*\1\s*\1", plain))
    described = any(len(word) > 1 for word in words)
    return any(c.isnumeric() for c in plain) or bool(_PLACE.search(plain)) or tally or not described


def fair_clue(text: str, barred: Iterable[str]) -> str:
    """A clue as the others hear it; empty if it is too long, names a barred word, or points at a place in the list."""
    clue = heard(text, LONGEST + 1)
    bad = len(clue) > LONGEST or names_one(clue, barred) or points_at_a_place(clue)
    return "" if bad else clue


def order_for(role: str, seed: int, things: Iterable[str]) -> tuple[str, ...]:
    """The objects in the role's own order, so that a place in the list means something else to each role."""
    listed = sorted(things)
    random.Random(seed_of("order", seed, role)).shuffle(listed)
    return tuple(listed)


def statement(key: str, holds: bool) -> str:
    return f"{QUESTIONS[key]} {'Yes.' if holds else 'No.'}"


_STATEMENTS = {statement(key, holds): (key, holds) for key in QUESTIONS for holds in (True, False)}


def understood(text: str) -> tuple[str, bool] | None:
    """The question and the answer in a statement; None for any other text."""
    return _STATEMENTS.get(text)
