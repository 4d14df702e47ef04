"""One engine: a scheduler, KV memory, and a clock that counts iterations.

``vllm`` decides, ``state`` carries out, ``clock`` makes a batch of decodes cost the same at any size, ``kv`` and
``prefix`` are memory, ``pace`` knows how long iterations take, ``leap`` and ``lanes`` pass over those in which nothing
is decided, and ``replica`` is the shell that waits.
"""
