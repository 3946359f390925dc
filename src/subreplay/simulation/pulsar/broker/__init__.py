"""Dispatch: who gets which entry, and when, as the broker's dispatchers decide it (Pulsar 3.2.3, 4.0.8, 4.2.4).

One ``Broker`` is one dispatcher: a subscription on one topic or partition. It is a tuple of arrays, so that compiled
code can change it; what decides is compiled too. Two drivers share it: ``reenact`` (what the consumers did is given)
and a prediction (a model of the consumers says what they do). Any compiled event loop can drive one:

* ``new_broker(DispatcherOptions(dispatcher, rule, settings))`` makes the state; ``dispatch_rule(profile)`` is the rule.
* ``membership.join`` and ``membership.leave`` return the next tuple; they take the policy's state after the event.
* Between those, set ``broker.state[0].now`` (ns; never back), then call an operation: ``publish`` (only with ``room``;
  ``with_window`` makes some) and ``published``; ``flow``; ``acknowledge`` or ``acknowledge_some`` and ``acknowledged``;
  ``acknowledge_up_to``; ``reject`` and ``rejected``; ``reject_all``; ``expire``.
* Then ``work``, which does all that follows at this instant. It returns False when ``dispatched`` is full: take
  ``dispatched[: state.dispatched]``, set ``state.dispatched = 0``, call it again.
* Timers: ``next_timer`` is the time of the next one, ``NEVER`` if none is set. Once it is due, ``fire_timer`` sets the
  clock to it; ``work`` follows. A 4.x dispatcher that cannot hand anything out keeps trying every 10 ms.
* The log may be fed as it is read: ``published(broker, more=True)`` says that there are entries that the window does
  not have yet. A read that wants them sets ``state.starved`` (at the end of the log: ``state.waits``) and ``work``
  stops; publish up to ``max_read`` of them, say ``published`` again and work on. Nothing else may happen before.

Entries are known by their ordinal in the log, consumers by ``Consumer.index``. Acknowledgements of entries that the
window has left are ignored; that one message of a batch is acknowledged once only is the caller's to see to.
"""
