"""Golden vectors: what real classes of Pulsar and Kafka answered, one case a line, against the classes used here.

``files`` finds and reads golden files and sends each case to the function for its kind. ``pulsar`` has those of hashes,
routing and dispatch order, ``pulsar_selectors`` those of the Key_Shared selectors, ``pulsar_dispatch`` those of whole
dispatchers, and ``kafka`` those of assignors and the partitioner. ``cases`` says what a case is and how answers are
compared. Each function tells the first difference, or None.
"""
