"""Whether a model knows a script, asked of the model itself.

A model that was trained on English turns every Chinese word into much the same vector, and its similarities there are
noise. Its name does not tell, but some pairs of everyday words do: who knows a script finds a dog nearer to a cat than
to money. Measured: all-MiniLM-L6-v2 gets 0.97 for Latin letters and at most 0.08 for the ten others,
multilingual-e5-small (in 4 bits) 0.54 to 0.91 for all. Languages that share a script are not distinguished.

The same words show what is near to everything in a script: see `Vectors.nearest`.
"""

import math
import sys
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from reprlib import repr as _short
from typing import Any

from ..keyword_tree import InvalidInputError

__all__ = ["LEAST_TRUST", "LITTLE_TRUST", "PROBES", "check_trust", "everyday_words", "probe", "scripts_of", "trust_in"]

LEAST_TRUST = 0.02
"""What a script counts that the model does not know, or that has no words here."""

LITTLE_TRUST = 0.1
"""Who gets less for a script does not know it, and words rank all but alone there."""

_WORDS = {
    "LATIN": "dog cat river lake bread rice money bank music song doctor hospital red blue rain snow",
    "CJK": "狗 猫 河流 湖泊 面包 米饭 金钱 银行 音乐 歌曲 医生 医院 红色 蓝色 下雨 下雪",
    "HIRAGANA": "りんご みかん コーヒー ビール テレビ ラジオ バス タクシー シャツ ズボン ピアノ ギター サッカー テニス",
    "HANGUL": "개 고양이 강 호수 빵 밥 돈 은행 음악 노래 의사 병원 빨강 파랑 비 눈",
    "CYRILLIC": "собака кошка река озеро хлеб рис деньги банк музыка песня врач больница красный синий дождь снег",
    "GREEK": "σκύλος γάτα ποτάμι λίμνη ψωμί ρύζι χρήμα τράπεζα μουσική τραγούδι γιατρός νοσοκομείο κόκκινο μπλε",
    "ARABIC": "كلب قطة نهر بحيرة خبز أرز مال بنك موسيقى أغنية طبيب مستشفى أحمر أزرق مطر ثلج",
    "HEBREW": "כלב חתול נהר אגם לחם אורז כסף בנק מוזיקה שיר רופא מרפאה אדום כחול גשם שלג",
    "DEVANAGARI": "कुत्ता बिल्ली नदी झील रोटी चावल पैसा बैंक संगीत गीत डॉक्टर अस्पताल लाल नीला बारिश बर्फ",
    "THAI": "สุนัข แมว แม่น้ำ ทะเลสาบ ขนมปัง ข้าว เงิน ธนาคาร ดนตรี เพลง หมอ โรงพยาบาล สีแดง สีฟ้า ฝน หิมะ",
}
PROBES: dict[str, list[str]] = {script: words.split() for script, words in _WORDS.items()}
"""Script → words, each followed by one that is near to it."""
PROBES["KATAKANA"] = PROBES["HIRAGANA"]


def scripts_of(text: str) -> dict[str, float]:
    """Return the scripts of a text's letters, each with its share.

    >>> scripts_of("Python 编程之美!")
    {'LATIN': 0.6, 'CJK': 0.4}
    """
    counts = Counter(script for script in map(_script_of, text) if script)
    return {script: count / counts.total() for script, count in counts.items()}


def everyday_words(text: str) -> dict[str, float]:
    """Return the words of `PROBES` in a text's scripts; those of a script weigh together what its share is.

    >>> words = everyday_words("Python 编程之美!")
    >>> len(words), round(words["dog"], 4), round(words["狗"], 4)
    (32, 0.0375, 0.025)
    """
    weights: dict[str, float] = {}
    for script, share in scripts_of(text).items():
        for word in PROBES.get(script, ()):
            weights[word] = weights.get(word, 0.0) + share / len(PROBES[script])
    return weights


@lru_cache(maxsize=4096)
def _script_of(character: str) -> str:
    plain = unicodedata.normalize("NFKC", character)[:1]  # "ｆ" is a Latin letter, not a fullwidth one
    if not character.isalpha() or not plain.isalpha() or unicodedata.category(plain) == "Lm":  # "ー" is of no script
        return ""
    return unicodedata.name(plain, "").split(" ")[0]


def probe(vectors: Sequence[Any]) -> float:
    """Return 0 to 1: how well a model that gave these vectors of a script's words knows the script.

    (2 · AUC − 1)², AUC being how often a word's partner is nearer to it than another word; below ½ it is 0.

    Args:
        vectors: Of length 1, one for each word of `PROBES[script]`, in that order.
    """
    wins: list[bool] = []
    for place, vector in enumerate(vectors):
        similarities = [float(vector @ other) for other in vectors]
        partner = similarities[place ^ 1]  # words stand in pairs
        wins += [partner > other for at, other in enumerate(similarities) if at not in (place, place ^ 1)]
    return max(0.0, 2 * sum(wins) / len(wins) - 1) ** 2


def trust_in(scripts: dict[str, float], known: dict[str, float]) -> float:
    """Return how far a model's vector of a text can be trusted; a script that is half of it counts fully.

    Args:
        scripts: The text's, with their shares.
        known: Script → what `probe` said.
    """
    each = (max(LEAST_TRUST, known.get(script, 0.0)) ** min(1.0, 2 * share) for script, share in scripts.items())
    return math.prod(each, start=1.0)


def check_trust(trust: float | Mapping[str, float] | None) -> None:
    """Refuse what cannot be trust: a number from 0 to 1, script → such a number, or None.

    Raises:
        InvalidInputError: It is none of these, or its script is none of Unicode's; the message names the value.
    """
    by_script = trust if isinstance(trust, Mapping) else {} if trust is None else {"LATIN": trust}
    for script, value in by_script.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise InvalidInputError(f"trust must be a number from 0 to 1, or such a number by script: {_short(trust)}")
        if script not in PROBES and not _is_script(script):
            raise InvalidInputError(f"trust has an unknown script {_short(script)}; known: {', '.join(PROBES)}, …")


def _is_script(name: object) -> bool:
    """Return whether letters have this name; up to 0.3 s, since Unicode's data has no list of scripts."""
    if not isinstance(name, str) or not name.isupper():
        return False
    return any(_script_of.__wrapped__(chr(code)) == name for code in range(sys.maxunicode + 1))
