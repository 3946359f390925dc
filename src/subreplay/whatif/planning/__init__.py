"""Which set-up to take: answers with the proof that nothing could be much better.

A plan begins with loads, an array of work by window and slot, by window and key, or by window and partition. Each
question is a file: sticky ``ranges``, the fewest ``consumers``, the number of ``partitions`` and so on. An answer
(``answer``) says what was found, a lower bound that nothing can beat, the gap between the two, the runner-up, and what
was assumed. ``capacity`` says how much work a message is and how long it waits.
"""
