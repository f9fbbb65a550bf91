"""Short rules of well-known games, and how their packages write positions and moves.

Most packages have no rules as text, and nobody can play from a position such as `3` or four bare numbers. `env.rules`
replaces these rules. For a game that is not listed here, the prompt only gives its name.
"""

from __future__ import annotations

OPENSPIEL = {
    "2048": (
        "2048: a move slides all tiles one way; equal tiles that meet merge into their sum, which is scored. "
        "0 is an empty place."
    ),
    "backgammon": "Backgammon: bring your checkers home and bear them off first. A move names the points from and to.",
    "bargaining": (
        "Two players split a pool of items that each values differently, and in private. An offer says what "
        "you keep; agreeing to the other's last offer ends the game. Without an agreement nobody gets "
        "anything."
    ),
    "battleship": (
        "Battleship: place your ships, then in turn shoot at cells of the other's hidden grid. Sinking ships "
        "pays, losing them costs."
    ),
    "blackjack": (
        "Blackjack: hit for another card or stand; nearer to 21 than the dealer wins, more than 21 loses. "
        "Cards are numbers from 0 to 51, 13 to a suit from the ace up."
    ),
    "breakthrough": (
        "Breakthrough: pieces move one square forward or diagonally forward and capture diagonally. Who first "
        "reaches the far row wins. b black, w white."
    ),
    "catch": "Catch: a ball (o) falls one row each step; move the paddle (x) on the lowest row under it.",
    "checkers": (
        "Checkers: o and + move diagonally forward, capture by jumping, and become kings (8, *) on the far "
        "row. A move is the square from and the square to."
    ),
    "chess": "Chess. The position is in FEN, moves are in algebraic notation.",
    "cliff_walking": "Walk P to the goal G; X is a cliff, which sends you back and costs 100; every step costs 1.",
    "connect_four": (
        "Connect Four: discs fall to the lowest free place of a column, four in a row win. x moves first; a "
        "move is the mark and the column, from 0."
    ),
    "dots_and_boxes": (
        "Dots and boxes: in turn draw a line between dots; who closes a box owns it and moves again; more "
        "boxes win. A move names a horizontal (h) or vertical (v) line by row and column."
    ),
    "first_sealed_auction": (
        "A sealed auction: val is what the item is worth to you. The highest bid gets the item and pays its bid."
    ),
    "go": "Go: surround more area than the other. B black, W white; a move is a colour and a point, or pass.",
    "goofspiel": (
        "Goofspiel: each round all bid one card of their hand for the point card; the highest bid takes its "
        "points. Most points win."
    ),
    "hanabi": (
        "Hanabi: a team builds fireworks of each colour from 1 up, from cards that everybody sees but their "
        "holder. Hints cost an info token, discards return one; a wrong card costs a life."
    ),
    "hex": "Hex: x connects top and bottom, o left and right. A move is a column and a row.",
    "kuhn_poker": (
        "Kuhn poker: three cards, 0 the lowest and 2 the highest, one each, and one chip each in the pot. Bet "
        "one more or pass; after a bet, pass folds and bet calls; the higher card wins. The position is your "
        "card, then the moves so far: p for pass, b for bet."
    ),
    "leduc_poker": (
        "Leduc poker: six cards, two of each of three ranks; cards are numbers, and two in a row (0 and 1, 2 "
        "and 3, 4 and 5) are a pair. Two rounds of betting, raises of 2 and then 4 chips, at most two a "
        "round; a public card is turned up between them. A pair with it wins, else the higher card."
    ),
    "lewis_signaling": (
        "A sender sees a state and sends a message; a receiver who sees only the message must name the state. "
        "Both are paid if it is right."
    ),
    "liars_dice": (
        "Liar's dice: everybody has hidden dice with faces 1 to 6; a 6 counts as any face. In turn bid a "
        "quantity and a face (2-5: at least two fives among all dice together), each bid higher than the "
        "last, or say Liar: then the dice are shown, and who was wrong about the last bid loses. The position "
        "is your dice, then the bids so far."
    ),
    "mancala": (
        "Mancala: take all seeds of one of your pits and sow them one by one; a last seed in your store moves "
        "again, one in an empty pit of yours captures. More seeds in the store win."
    ),
    "negotiation": (
        "Two agents split a pool of three kinds of items that each values differently, and in private. A "
        "proposal says what you take; accepting the other's last proposal ends the game."
    ),
    "nim": (
        "Nim: in turn take any number from one pile; who takes the last one loses. The position is whose turn "
        "it is, then the piles."
    ),
    "nine_mens_morris": (
        "Nine men's morris: place nine men, then move them along the lines; three in a row take one of the "
        "other's men. Who has two men left, or no move, loses."
    ),
    "oshi_zumo": (
        "Oshi-Zumo: both bid coins at once; the higher bid pushes the wrestler W one place towards the "
        "other's end of the field."
    ),
    "othello": (
        "Othello: place a disc so that discs of the other lie in a line between it and another of yours; they "
        "become yours. More discs at the end win."
    ),
    "pentago": (
        "Pentago: place a mark, then turn one of the four quarters of the board; five in a row win. A move is "
        "a place and the letter of a turn."
    ),
    "phantom_ttt": (
        "Tic-tac-toe in the dark: you see only your own marks and where you found the other's. Three in a row "
        "win; a move on a taken place shows that it is taken."
    ),
    "pig": (
        "Pig: roll a die as often as you like and add it up; a 1 loses the turn's total, stop banks it. The "
        "first to the target wins."
    ),
    "quoridor": (
        "Quoridor: reach the far side first. Move one cell, or place a wall (h or v behind a cell), which may "
        "never close the last way."
    ),
    "tic_tac_toe": "Tic-tac-toe: three in a row win. x moves first; a move is the mark with row and column, from 0.",
    "tiny_hanabi": (
        "A game of two moves for a team: each sees a card of its own (d0, d1) and the other's move; the "
        "payoff depends on both cards and both moves."
    ),
    "ultimate_tic_tac_toe": (
        "Ultimate tic-tac-toe: nine boards; your place in a small board names the board in which the other "
        "must move. Three small boards in a row win."
    ),
    "universal_poker": "Poker: bet on your private cards and the public ones. Fold, call, bet or go all in.",
}

GYMNASIUM = {
    "Acrobot": (
        "Two links hang from a joint; pull at the joint between them until the lower end swings above the "
        "line. Every step costs 1."
    ),
    "Blackjack": (
        "Blackjack: hit for another card or stick; nearer to 21 than the dealer wins, more than 21 loses. An "
        "ace is usable if it can count 11."
    ),
    "CartPole": (
        "A pole stands on a cart. Push the cart left or right so that the pole stays up (within 0.21 radians) "
        "and the cart on its track (within 2.4). Every step that it stands pays 1."
    ),
    "CliffWalking": (
        "Walk x to the goal T; C is a cliff, which sends you back to the start and costs 100; every step costs 1."
    ),
    "FrozenLake": (
        "Walk over the ice from S to G. F is frozen, H a hole that ends the game. Reaching G pays 1. On "
        "slippery ice a step may go sideways."
    ),
    "MountainCar": (
        "A car in a valley is too weak to climb the right hill (position 0.5) at once: swing left and right "
        "to gain speed. Every step costs 1."
    ),
    "Taxi": (
        "Drive the taxi to the passenger, pick up, drive to the destination, drop off. R, G, Y and B are the "
        "four stands; | are walls. A right drop pays 20, a wrong pick-up or drop costs 10, every step 1."
    ),
}
GYMNASIUM["FrozenLake8x8"] = GYMNASIUM["FrozenLake"]
GYMNASIUM["CliffWalkingSlippery"] = GYMNASIUM["CliffWalking"] + " A step may slip sideways."

# The meaning of the numbers in an observation, for games that show numbers.
LABELS = {
    "Acrobot": ("cos of angle 1", "sin of angle 1", "cos of angle 2", "sin of angle 2", "speed 1", "speed 2"),
    "Blackjack": ("your sum", "the dealer's card", "a usable ace"),
    "CartPole": ("cart position", "cart velocity", "pole angle", "pole angular velocity"),
    "MountainCar": ("position", "velocity"),
    "Pendulum": ("cos of the angle", "sin of the angle", "angular velocity"),
    "LunarLander": ("x", "y", "speed x", "speed y", "angle", "angular speed", "left leg down", "right leg down"),
}

PETTINGZOO = {
    "chess": "Chess. Moves name the square from and the square to.",
    "connect_four": (
        "Connect Four: discs fall to the lowest free place of a column, four in a row win. A move is a column."
    ),
    "go": "Go: surround more area than the other.",
    "hanabi": OPENSPIEL["hanabi"],
    "leduc_holdem": (
        "Leduc poker: six cards, two of each of J, Q and K. Two rounds of betting, raises of 2 and then 4 "
        "chips; a public card is turned up between them. A pair with it wins, else the higher card."
    ),
    "rps": ("Rock, paper, scissors: both move at once; rock beats scissors, scissors beat paper, paper beats rock."),
    "texas_holdem": "Limit Texas hold'em: two private cards, five public ones in three steps, betting in four rounds.",
    "texas_holdem_no_limit": (
        "No-limit Texas hold'em: two private cards, five public ones in three steps, four rounds of betting."
    ),
    "tictactoe": "Tic-tac-toe: three in a row win. A move is the number of an empty place.",
}
