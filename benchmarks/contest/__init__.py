"""The detection league: contestants that look at faulty servers beside this suite (`league.py`)."""
