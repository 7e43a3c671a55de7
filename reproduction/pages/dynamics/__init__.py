"""How calibration changes while networks train [mukhoti2020, Fig. 1-4 and 10; ghosh2022, Fig. 2, 5 and 34].

`page` puts the topics together, each from the file of its subject with its table, sentences and figures. Their numbers
come from `records`, are put side by side by `compare`, and shown by `section` and `drawing`.
"""

from reproduction.pages.dynamics.page import TITLE, figures, page

__all__ = ["TITLE", "figures", "page"]
