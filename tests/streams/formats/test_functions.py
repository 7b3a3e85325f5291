"""`headwater.functions`: everything is there, and nothing is loaded before it is wanted."""

import subprocess
import sys

import pytest

from headwater import functions as hf


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_name_is_a_function() -> None:
    for name in hf.__all__:
        assert callable(getattr(hf, name)), name
    assert set(hf.__all__) <= set(dir(hf))
    with pytest.raises(AttributeError, match="no attribute 'xml'"):
        hf.xml  # type: ignore[attr-defined]  # noqa: B018 - looking is enough


def test_neither_spark_nor_arrow_is_loaded_before_it_is_wanted() -> None:
    heavy = "{'pyspark', 'pyarrow', 'fastavro', 'google.protobuf'}"
    run(f"import sys, headwater.functions; assert not {heavy} & set(sys.modules)")


def test_without_spark_it_is_said_what_to_install() -> None:
    hidden = "import sys; sys.modules['pyspark'] = None; import importlib.util as u"
    told = (
        "find = u.find_spec; u.find_spec = lambda n, *a: None if n == 'pyspark' else find(n, *a)\n"
        "from headwater import functions as hf, HeadwaterError\n"
        "try:\n    hf.json\nexcept HeadwaterError as error:\n"
        "    assert \"pip install 'headwater[spark]'\" in error.hint\n"
        "else:\n    raise SystemExit('not told')\n"
    )
    run(f"{hidden}\n{told}")
