"""Words that stories, chats and retrieval tasks draw from."""
# ruff: noqa: SIM905  (lists of words read better as text)

GIRLS = (
    "Anna Alice Bella Clara Daisy Ella Emma Eva Fiona Grace Hanna Ida Iris Jane Julia Kate Lena Lily Lucy Maria Mia "
    "Molly Nina Nora Olga Paula Rosa Ruth Sara Tina Vera Wendy Zoe"
).split()
BOYS = (
    "Adam Albert Ben Carl Dan David Eric Felix Frank Fred George Henry Hugo Ivan Jack James Leo Luke Mark Martin Max "
    "Nick Oscar Otto Paul Peter Ralph Sam Simon Theo Tim Tom Victor Walter Will"
).split()
NAMES = GIRLS + BOYS

# Keys of retrieval tasks: stones, plants, animals, things.
KEYS = (
    "amber coral ruby opal pearl jade silver copper iron marble crystal granite diamond topaz garnet onyx quartz slate "
    "apple lemon cherry maple cedar willow tulip rose ivy clover moss fern olive ginger pepper barley walnut acorn "
    "tiger falcon raven otter badger beaver salmon dolphin eagle sparrow rabbit turtle spider beetle lizard panther "
    "zebra camel donkey hornet lobster monkey parrot pigeon squirrel swan wolf bison heron "
    "anchor lantern hammer ladder mirror candle basket bottle bucket button carpet castle compass cradle crown "
    "curtain dagger engine feather fiddle funnel garden helmet island kettle magnet medal needle orchard paddle pencil "
    "pillow pocket puzzle ribbon rocket saddle shield shovel signal statue temple ticket timber trumpet tunnel violin "
    "wagon whistle window winter summer thunder rainbow meadow harbor glacier desert canyon comet planet"
).split()

ANIMALS = "fox bear rabbit mouse cat dog owl duck frog hen goat squirrel hedgehog pony lamb crow".split()
COLORS = "red blue green yellow white black brown golden gray".split()
MOODS = "kind brave quiet clever shy cheerful curious gentle lazy proud".split()
PLACES = (
    "a small village|a deep forest|a house by the sea|an old mill|a farm on a hill|a town near the river|"
    "a cottage under the tall trees|a castle on the mountain|a little boat on the lake|a cave near the beach"
).split("|")
THINGS = (
    "ball kite drum hat key lantern book cake ring boat bell coat map spoon basket shell whistle ribbon candle cup"
).split()
FOODS = "bread soup honey apples cheese berries nuts milk pie carrots".split()
