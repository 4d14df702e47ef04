"""Results: what a run left behind (``record``), its figures (``metrics``), where the time went
(``attribution``), and the class that shows and keeps them (``results``, ``storage``)."""
