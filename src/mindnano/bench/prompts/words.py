"""The vocabulary that prompts are written with: common enough for any tokenizer, wide enough to spread over experts."""

from __future__ import annotations


def words(text: str) -> list[str]:
    return text.split()


NAMES = words("""
Ada Amara Anton Beatriz Boris Chen Clara Dmitri Elena Emeka Farid Fatima Georg Greta Hana Hassan Ingrid Isaac Jana
Joaquin Kenji Laila Lars Leila Luca Magda Marek Mei Mira Nadia Naveen Olga Omar Pavel Priya Quentin Rafael Rosa Samir
Sofia Tariq Teresa Tomas Uma Viktor Wanda Xavier Yara Yusuf Zofia
""")

PLACES = words("""
Aarhus Bergen Bilbao Bristol Cork Dakar Delft Ghent Graz Hanoi Izmir Kyoto Lagos Leeds Lima Lviv Malmo Nantes Odessa
Oporto Ottawa Pune Quito Riga Salta Split Tampere Tartu Toledo Turin Utrecht Varna Vilnius Wuhan Zadar
""")

NOUNS = words("""
account answer archive argument arrival autumn balcony bargain basin battery beam bench bicycle border bottle boundary
branch bread breeze bridge bucket budget builder cabin cable canal candle captain cargo carpet castle catalogue cause
ceiling chain chamber channel chapter circle circuit citizen clerk climate clock cloud coast column commerce committee
compass concert contract copper copy corner cottage council courier creek crew crowd curtain custom dancer deadline
debate decade decision delay delivery desert detail diagram dispute distance doctor draft dream drought duty echo
editor effort engine entrance error estate evening evidence exchange expense expert fabric factory failure farmer
fashion feather ferry festival figure filter fire flood floor forecast forest fortune fountain frame freight friend
frost furnace garden gate glacier glass grain granite grocer guard guest guide habit hammer harbour harvest hedge hill
history horizon hospital hour hunter idea income inn insect inspector island journal journey judge junction kettle
kitchen knife ladder lake lamp landlord lantern lawyer leather ledger legend lesson letter level library lighthouse
limit linen list loan lock lunch machine magazine map market mason meadow measure medicine meeting memory merchant
message metal method mill mine minister mirror model moment monument morning motor mountain museum music neighbour
night noise north notebook novel nurse oak ocean office opinion orchard order origin oven owner paint palace paper
parcel park partner passage passenger path pattern pause payment pencil permit phrase piano picture pilot pipe plain
plan plaster platform pocket poem police pond porch port portrait potter powder practice price printer prison problem
profit promise proof province pump purpose quarry quarter question queue railway rain reader reason receipt record
region remedy report request reserve resident result river road roof room route rule rumour sailor salt sample sand
scale school science season secret seed sense sentence servant shadow shelf ship shore signal silence silver sister
skill sky sleep slope smith smoke snow soil soldier song source south spring square stable staff stage stairs statue
steam step stone storm story stranger stream street student study sugar summer supper surface surgeon survey sword
symbol system tailor tale task teacher temple tenant theatre theory thread thunder ticket tide timber title tool tower
town track trade tradition train traveller treaty tree trial tunnel uncle union valley value vessel victory village
violin voice volume voyage wage wagon wall war warehouse warning watch water weather weaver week weight well west wheel
wheat wind window wine winter witness wood wool word worker workshop writer yard year
""")

ADJECTIVES = words("""
absent ancient angry bare bitter blue brave brief bright broad broken busy calm careful cheap clean clear clever cold
common complete cool curious damp dark deep different dry dull early eastern empty equal exact false familiar famous
fast final firm flat foreign formal former free fresh frozen full gentle golden grand grave green grey half hard heavy
hidden high hollow honest huge idle important large late legal light local lonely long loose loud low lucky main
modern narrow native near new noble northern old open ordinary pale patient plain pleasant polite poor private proper
public quick quiet rare ready recent red remote rich rough round rural sad safe sharp short shy silent simple single
slow small smooth soft solid sour southern square steady steep stern stiff strange strict strong sudden sweet tall
thick thin tight tired tough true upper urgent useful usual vague vast warm weak western wet white wide wild wise wooden
wrong yellow young
""")

PAST = words("""
abandoned accepted admired announced answered arranged avoided believed blamed borrowed bought brought built carried
caught changed chose claimed collected compared completed copied counted covered crossed delivered denied described
discovered divided doubted drew earned enjoyed examined explained feared filled followed forgot found guarded heard
hid ignored improved inspected invited kept knew learned left lifted locked lost loved managed marked measured mended
mentioned missed moved named needed noticed opened ordered owned painted passed photographed planned praised prepared
preferred printed promised protected proved published questioned raised reached read recalled received recognised
refused remembered repaired repeated replaced reported rescued returned sealed searched sent served shared showed
signed sold solved studied suggested surprised taught tested thanked took translated trusted understood used visited
wanted warned watched weighed welcomed wrote
""")

ADVERBS = words("""
again almost already always badly barely carefully early easily exactly finally gladly gradually hardly honestly later
mostly nearly never nowhere often once only openly partly perhaps politely promptly quickly quietly rarely seldom
slowly sometimes soon steadily suddenly together twice usually
""")

VERBS = words("""
accept add apply build cache check clean close collect compare copy count decode drop encode extend fetch fill filter
find flush group index insert join keep load lock log map mark match measure merge move open pack parse pick print
probe prune push queue read record reduce remove repeat reset resolve restore rotate save scan seal search select send
shift skip sort split start stop store swap sync test trace trim update verify wait walk warn write
""")

FIELDS = words("""
account age amount area balance batch block bytes capacity channel city code colour cost count current date delay depth
distance duration energy factor first flow frame height humidity index item key label last latency level limit load
mass name offset order owner page part phase place port position power pressure price queue range rank rate ratio
region score sensor shape size slot speed stage start state status step stock table temperature time total unit
user value version voltage volume weight width zone
""")

KEYS = words("""
amber coral ruby opal pearl jade silver copper iron marble crystal granite apple lemon cherry maple cedar willow tulip
rose tiger falcon raven otter eagle rabbit turtle zebra wolf swan bottle button carpet curtain engine garden hammer
island kettle ladder mirror orchard pencil pocket puzzle ribbon saddle shield shovel signal temple thunder tunnel
violin wagon whistle window winter
""")
