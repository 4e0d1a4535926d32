"""The real texts for comparing an export: long and short, in several scripts, plain and awkward."""

_LONG = (
    "The history of cartography is a history of compromises. No flat map can keep angles, areas and "
    "distances at the same time, and so every projection is a choice of what to give up. Sailors wanted "
    "angles, because a course of constant bearing was then a straight line; tax collectors wanted areas; and "
    "engineers, who laid cables across oceans, wanted distances from a single point. What was printed in "
    "atlases was often none of these, but something that looked right to people who had grown up with it. "
)

TEXTS: tuple[str, ...] = (
    "a",
    "Yes.",
    "Hello, world!",
    "What time is it?",
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "A man is riding a white horse on an enclosed ground.",
    "The animal did not cross the street because it was too tired.",
    "The animal did not cross the street because it was too wide.",
    "Two dogs chase each other through the shallow water, barking.",
    "Stocks fell sharply on Monday after the central bank raised its rate by 0.75 percentage points.",
    "She said: “I never said she stole my money.”",
    "It isn't what you don't know that gets you into trouble; it's what you're sure of that just ain't so.",
    "Antidisestablishmentarianism, pneumonoultramicroscopicsilicovolcanoconiosis",
    "def mean(xs: list[float]) -> float:\n    return sum(xs) / len(xs)",
    "SELECT name, COUNT(*) FROM orders WHERE paid = 1 GROUP BY name HAVING COUNT(*) > 3;",
    "https://example.org/a/very/long/path?with=parameters&and=more#fragment",
    "E = mc², ∑ᵢ xᵢ ≤ n·max(x), 3.14159265358979, −273.15 °C, 1e-12, 0x7fffffff",
    "€1,299.00 (incl. 19 % VAT), order no. 2024/00317-B",
    "UPPER CASE, lower case, CamelCase, snake_case, kebab-case, tEsT",
    "...!!! ??? --- *** ((( [[[ {{{ }}} ]]] )))",
    "[MASK] [CLS] [SEP] are only words here.",
    "   leading,    inner\tand trailing   whitespace \n\n",
    "🙂",
    "I love pizza 🍕🍕🍕 and my family 👨‍👩‍👧‍👦, from 🇮🇹 with ❤️!",
    "Die Straßenbahn fährt heute wegen Bauarbeiten nicht über den Königsplatz.",
    "Le cœur a ses raisons que la raison ne connaît point.",
    "El pingüino de Málaga comió jamón a las ocho y media de la mañana.",
    "Ünïcödé ñormalisation: café, cafe\u0301, ﬁancé, Å, Å.",
    "Мой дядя самых честных правил, когда не в шутку занемог.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι.",
    "我能吞下玻璃而不伤身体。",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है।",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "buffalo " * 40,
    "In 1969 the two astronauts left a mirror on the moon. A laser on the ground is pointed at it to this "
    "day, and of some 10¹⁷ photons in each pulse about one comes back, from which the distance is known to "
    "millimetres.",
    "The committee, which had met every second Thursday since the flood, could not agree on whether the "
    "bridge should be rebuilt where it had stood, a little further up the river, where the banks are higher, "
    "or not at all; in the end the ferryman, whom nobody had asked, bought a larger boat.",
    _LONG,
    _LONG * 2,
    _LONG * 8,
)
