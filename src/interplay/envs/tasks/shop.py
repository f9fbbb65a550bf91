"""A small shop with customers, products and orders, drawn from a seed, as contents for tasks over data.

Names, towns and prices are drawn. Every order refers to a customer and a product that exist. The same seed gives the
same shop. `database` returns it in SQLite, and `table` returns its orders as one sheet.
"""

from __future__ import annotations

import random
from functools import lru_cache

from interplay.execution.database import build
from interplay.execution.query import Cell

SCRIPT = """
CREATE TABLE customer (customer_id INTEGER PRIMARY KEY, name TEXT, town TEXT, age INTEGER);
CREATE TABLE product (product_id INTEGER PRIMARY KEY, name TEXT, kind TEXT, price REAL);
CREATE TABLE purchase (purchase_id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer (customer_id),
                       product_id INTEGER REFERENCES product (product_id), quantity INTEGER, month INTEGER);
"""
NAMES = (
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gil", "Hana", "Ivo", "Jana", "Kim", "Lea", "Max", "Nora", "Ole", "Pia",
    "Quin", "Rosa", "Sam", "Tess", "Ugo", "Vera", "Will", "Xena", "Yan", "Zoe",
)  # fmt: skip
TOWNS = ["Arden", "Bern", "Cork", "Delft", "Espoo", "Fano", "Gent", "Hull", "Izmir", "Jena"]
PRODUCTS = {
    "lamp": "home", "vase": "home", "rug": "home", "drill": "tools", "saw": "tools", "file": "tools",
    "kite": "toys", "doll": "toys", "ball": "toys", "rice": "food", "tea": "food", "jam": "food",
}  # fmt: skip
HEADER = ("order", "customer", "town", "product", "kind", "price", "quantity", "month")
ShopRows = list[tuple[Cell, ...]]


@lru_cache(maxsize=1024)
def contents(seed: int, size: int) -> tuple[ShopRows, ShopRows, ShopRows]:
    """Customers, products and `size` purchases."""
    rng = random.Random(seed)
    towns, names = rng.sample(TOWNS, 4), rng.sample(NAMES, min(len(NAMES), 4 + size // 4))
    goods = rng.sample(sorted(PRODUCTS), min(len(PRODUCTS), 4 + size // 8))
    customers: ShopRows = [(i, n, rng.choice(towns), rng.randint(18, 80)) for i, n in enumerate(names, 1)]
    products: ShopRows = [(i, p, PRODUCTS[p], rng.randint(4, 400) / 4) for i, p in enumerate(goods, 1)]
    purchases: ShopRows = [
        (i, rng.randint(1, len(customers)), rng.randint(1, len(products)), rng.randint(1, 9), rng.randint(1, 12))
        for i in range(1, size + 1)
    ]
    return customers, products, purchases


@lru_cache(maxsize=1024)
def database(seed: int, size: int) -> bytes:
    customers, products, purchases = contents(seed, size)
    return build(SCRIPT, {"customer": customers, "product": products, "purchase": purchases})


def table(seed: int, size: int) -> ShopRows:
    """The purchases with the data that they refer to, under `HEADER`."""
    customers, products, purchases = contents(seed, size)
    out: ShopRows = []
    for number, who, what, quantity, month in purchases:
        assert isinstance(who, int) and isinstance(what, int)
        _, name, town, _ = customers[who - 1]
        _, product, kind, price = products[what - 1]
        out.append((number, name, town, product, kind, price, quantity, month))
    return out
