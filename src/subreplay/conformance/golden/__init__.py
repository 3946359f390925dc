"""Golden vectors: results of real classes of Pulsar and Kafka, one case per line, compared with the classes of this
package.

``golden_files`` finds and reads golden files and passes each case to the function for its kind. ``pulsar_cases`` has
those of hashes, routing and dispatch order, ``selector_cases`` those of the Key_Shared selectors, ``dispatcher_cases``
those of whole dispatchers, and ``kafka_cases`` those of assignors and the partitioner. ``golden_cases`` defines a case
and the comparison. Each function returns the first difference, or None.
"""
