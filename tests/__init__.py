"""Tests of Headwater; the folders mirror `src/headwater`."""
