"""Simple stories from a grammar of our own: names, things and places stay the same through a story.

They are what a model of this size can learn to tell; nothing in them comes from elsewhere.
"""

from __future__ import annotations

from random import Random

from training.words import ANIMALS, BOYS, COLORS, FOODS, GIRLS, MOODS, PLACES, THINGS


class Hero:
    """Somebody in a story, with the pronouns that go with the name."""

    def __init__(self, r: Random, taken: str = "") -> None:
        girl = r.random() < 0.5
        self.name = r.choice([n for n in (GIRLS if girl else BOYS) if n != taken])
        self.he, self.him, self.his = ("she", "her", "her") if girl else ("he", "him", "his")
        self.animal = r.choice(ANIMALS) if r.random() < 0.55 else ""
        self.kind = self.animal or ("girl" if girl else "boy")
        self.He = self.he.capitalize()


def an(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def story(r: Random, name: str = "", animal: str = "") -> str:
    """One story of 6 to 14 sentences. `name`, `animal`: the hero's, where they were asked for."""
    hero = Hero(r)
    if name:
        girl = name in GIRLS
        hero.name = name
        hero.he, hero.him, hero.his = ("she", "her", "her") if girl else ("he", "him", "his")
        hero.He, hero.kind = hero.he.capitalize(), hero.animal or ("girl" if girl else "boy")
    if animal:
        hero.animal = hero.kind = animal
    friend = Hero(r, hero.name)
    place, mood, color, thing = r.choice(PLACES), r.choice(MOODS), r.choice(COLORS), r.choice(THINGS)
    parts = [_opening(r, hero, place, mood), _habit(r, hero)]
    plot = r.choice((_lost, _found, _storm, _hungry, _afraid))
    parts += plot(r, hero, friend, f"{color} {thing}", thing)
    parts.append(_ending(r, hero, friend))
    return " ".join(part for part in parts if part)


def _opening(r: Random, h: Hero, place: str, mood: str) -> str:
    return r.choice((
        f"Once upon a time there was {an(mood)} {h.kind} named {h.name} who lived in {place}.",
        f"In {place} there lived {an(mood)} {h.kind}. {h.his.capitalize()} name was {h.name}.",
        f"{h.name} was {an(mood)} {h.kind}. {h.He} lived in {place}.",
        f"There once was {an(mood)} little {h.kind} called {h.name}. {h.He} lived in {place} and knew everyone there.",
        f"Long ago, in {place}, lived {an(mood)} {h.kind} whose name was {h.name}.",
    ))  # fmt: skip


def _habit(r: Random, h: Hero) -> str:
    food = r.choice(FOODS)
    return r.choice((
        f"Every morning {h.he} ate some {food} and looked at the sky.",
        f"{h.name} liked {food} more than anything else.",
        f"{h.He} loved to walk along the path and sing.",
        f"Every evening {h.name} sat by the window and counted the stars.",
        f"{h.He} had many friends, but {h.he} also liked to be alone.",
        "",
    ))  # fmt: skip


def _when(r: Random) -> str:
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    return r.choice(
        ("One day", "One morning", f"One {r.choice(days)}", "One cold winter day", "One warm evening")
    )


def _lost(r: Random, h: Hero, f: Hero, item: str, thing: str) -> list[str]:
    where = r.choice(
        ("under the bed", "behind the door", "in the tall grass", "near the river", "under an old tree")
    )
    return [
        f"{_when(r)} {h.name} lost {h.his} {item}.",
        r.choice((f"{h.He} looked everywhere, but the {thing} was gone.", f"{h.He} was very sad and began to cry.")),
        f"Then {f.name} the {f.kind} came by." if f.animal else f"Then {f.name} came by.",
        f'"Why are you so sad?" asked {f.name}.',
        f'"I can not find my {item}," said {h.name}.',
        r.choice((
            f'"Do not worry," said {f.name}. "We will look for it together."',
            f'"Let me help you," said {f.name}.',
        )),
        f"They looked and looked, and at last {r.choice((h, f)).name} found the {thing} {where}.",
        f'"Thank you, {f.name}!" said {h.name}. "Now I have my {item} again."',
    ]  # fmt: skip


def _found(r: Random, h: Hero, f: Hero, item: str, thing: str) -> list[str]:
    return [
        f"{_when(r)} {h.name} found {an(item)} on the road.",
        f'"Whose {thing} is this?" {h.he} asked.',
        f"{h.He} asked {r.choice(('the baker', 'the miller', 'the old man', 'the teacher'))}, but nobody knew.",
        f"Then {h.he} met {f.name}, {an(f.kind)} who was looking at the ground.",
        f'"Have you lost something?" asked {h.name}.',
        f'"Yes," said {f.name}, "I have lost my {item}."',
        f"{h.name} gave the {thing} back to {f.name}.",
        r.choice((
            f"{f.name} was so happy that {f.he} gave {h.him} some {r.choice(FOODS)}.",
            f'"You are a good {h.kind}," said {f.name}.',
        )),
    ]  # fmt: skip


def _storm(r: Random, h: Hero, f: Hero, item: str, thing: str) -> list[str]:
    return [
        f"{_when(r)} a big storm came.",
        r.choice(("The wind blew and the rain fell all night.", "It was dark, and the wind was loud.")),
        f"{h.name} heard a small voice outside.",
        f"It was {f.name}, {an(f.kind)} from the other side of the hill.",
        f'"Please let me in," said {f.name}. "I am cold and wet."',
        f"{h.name} opened the door at once.",
        f"{h.He} gave {f.him} {an(item)} and some {r.choice(FOODS)}.",
        f"In the morning the sun was shining, and {f.name} still had the {thing}.",
        f'"You may keep the {thing}," said {h.name}.',
    ]


def _hungry(r: Random, h: Hero, f: Hero, item: str, thing: str) -> list[str]:
    food = r.choice(FOODS)
    return [
        f"{_when(r)} {h.name} was very hungry, but there was no {food} in the house.",
        f"So {h.he} took {h.his} {item} and went to the market.",
        f"There {h.he} met {f.name}, {an(f.kind)} with a lot of {food}.",
        f'"I will give you some {food}," said {f.name}, "if you give me your {thing}."',
        r.choice((
            f"{h.name} thought about it for a long time. Then {h.he} gave {f.him} the {thing}.",
            f'"This {thing} was a gift," said {h.name}. "But we can eat and play with it together."',
        )),
        f"They sat down under a tree and ate the {food}.",
        r.choice((f"It was the best {food} of all.", f"Soon all the {food} was gone.")),
    ]  # fmt: skip


def _afraid(r: Random, h: Hero, f: Hero, item: str, thing: str) -> list[str]:
    fear = r.choice(("the dark", "the deep water", "the big dog", "the old bridge", "the thunder"))
    return [
        f"But {h.name} was afraid of {fear}.",
        f"{_when(r)} {h.his} friend {f.name} the {f.kind} came to visit." if f.animal
        else f"{_when(r)} {h.his} friend {f.name} came to visit.",
        f'"Come with me," said {f.name}. "I want to show you {an(item)}."',
        f'"I can not go," said {h.name}. "I am afraid of {fear}."',
        f'"Take my hand," said {f.name}, "and you will see that there is nothing to fear."',
        f"So {h.name} took a deep breath and went with {f.him}.",
        f"When they saw the {thing}, {h.name} forgot all about {fear}.",
        f"After that day {h.he} was never afraid of {fear} again.",
    ]  # fmt: skip


def _ending(r: Random, h: Hero, f: Hero) -> str:
    return r.choice((
        f"From that day on, {h.name} and {f.name} were the best of friends.",
        f"{h.name} and {f.name} played together until the sun went down.",
        f"That night {h.name} slept well and dreamed of {f.name}.",
        f"And {h.name} never forgot what {f.name} had done. The end.",
        f"Then {h.name} went home, happy and tired. The end.",
        "They laughed, and they lived happily ever after.",
    ))  # fmt: skip
