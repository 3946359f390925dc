"""How faithfully the dispatch replay re-enacts what a real broker did: recordings in, figures out.

``recording`` reads a recording dispatcher by dispatcher; ``log`` reads the permits in a broker's own log. ``inputs``
makes what a re-enactment takes, with ``sessions``, ``changes``, ``flows`` and ``reads`` for consumers, switches,
permits and reads. ``replay`` re-enacts it. ``figures`` and ``blocked`` compare both sides, ``measure`` is the whole in
one call, and ``text`` puts its figures into words.

Nothing here is predicted: what consumers did is given, and only the dispatcher decides anew.
"""
