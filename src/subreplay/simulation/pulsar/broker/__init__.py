"""Dispatch: which consumer receives which entry, and when, as decided by the broker's dispatchers (3.2.3, 4.0.8,
4.2.4).

One ``Broker`` is one dispatcher: a subscription on one topic or partition. It is a tuple of arrays, so that compiled
code can change it; the decisions are compiled too. Two drivers use it: ``reenact`` with recorded consumers, and a
prediction with a model of the consumers. Any compiled event loop can drive one:

* ``create_broker(DispatcherOptions(dispatcher, rule, settings))`` makes the state; ``find_dispatch_rule(profile)``
  returns the rule.
* ``broker_membership.join`` and ``broker_membership.leave`` return the next tuple; they take the policy's state after
  the event.
* Between those, set ``broker.state[0].now`` (ns; never back), then call an operation: ``publish`` (only with
  ``count_free_window``; ``grow_window`` makes more) and ``notify_published``; ``flow``; ``acknowledge`` or
  ``acknowledge_some`` and ``finish_acknowledgements``; ``acknowledge_up_to``; ``reject`` and ``finish_rejections``;
  ``reject_all``; ``expire``.
* Then call ``run_tasks``, which does everything that follows at this instant. It returns False when ``dispatched`` is
  full: take ``dispatched[: state.dispatched]``, set ``state.dispatched = 0``, and call it again.
* Timers: ``find_next_timer`` is the time of the next one, ``NEVER`` if none is set. Once it is due, ``fire_timer`` sets
  the clock to it; ``run_tasks`` follows. A 4.x dispatcher that cannot dispatch anything keeps trying every 10 ms.
* The log may be fed as it is read: ``notify_published(broker, more=True)`` says that there are entries that the window
  does not contain yet. A read that needs them sets ``state.starved`` (at the end of the log: ``state.waits``) and
  ``run_tasks`` stops. Publish up to ``max_read`` of them, call ``notify_published`` again and continue. Nothing else
  may happen before.

Entries are known by their ordinal in the log, consumers by ``Consumer.index``. Acknowledgements of entries that have
left the window are ignored. The caller must acknowledge each message of a batch only once.
"""
