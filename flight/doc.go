// Package flight holds what the door holds for each admission, from the yes to the end: the places and reservations in limits,
// the worker's booking, and the facts that come in.
//
// # What it promises
//
// Each admission that was opened is journaled once as *admitted*, when it is opened, and once as *usage*, at its end, in
// whatever order the facts come, however often, and from however many goroutines. Its lease and its booking are freed at the
// first fact that says it is over, and once; its lease is renewed until then.
//
// Only facts end a flight: the end of the response that the meter saw, what the access log says, or that neither will come
// (Facts.Lost, Lose, Close). A meter that broke off is no end: its request may run on, until the log says otherwise. One
// timer frees what may still be running: where no meter is at work, a log that has not come Config.Orphan after the last sign of
// life (the admission, Envoy's word that it runs, the end of a meter) counts as lost.
// While a request runs Envoy may tell what has passed: that counts where nothing better comes, because Envoy died.
// Once a flight has ended, the usage record waits for the other half of the facts, at most Config.Grace. Of an answer
// that a shim has noted the log brings both; where no response of a worker began, it is all there is.
//
// Leases are renewed beside all that: a limiter that hangs holds up no record. A renewal that failed is tried again at once.
//
// Facts may come before their flight: when a client leaves while it is being admitted, Envoy's log overtakes the admission.
// The facts of the last 8,192 unknown admissions are kept for that, and as many ended ones are remembered, so that late facts
// or a late second Open of the same admission change nothing.
//
// # Tokens
//
// What an admission reserved in quotas is settled once, in the step that frees its leases: by what the engine reported, of which
// cached tokens count by their weight; where it did not report, by the estimate of the prompt and the events that passed; by
// nothing where no worker took the request or its answer was an error. Where nothing is known the reservation stands.
//
// Leases come free at the first fact that says how much was used; a hold that counts in quotas waits for it for at most a
// quarter of a second. What a shim has noted comes with the log; a meter's word comes before it, or milliseconds after.
// Where a client left, the meter's comes seconds later: then the meter is asked what has passed.
//
// # What it does not promise
//
// A flight whose meter neither ends nor breaks off stays open, without a timer: its lease is held, and spokegate_flights_open shows
// it. Facts that come after the usage record are dropped and counted (anomaly "late"). What a crash takes along is repaired
// from *served*.
//
// An open flight takes under 1 KB.
package flight
