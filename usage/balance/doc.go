// Package balance proves the usage records: it reads what all sources have journaled, from spools or from Kafka, joins it by
// admission, and names everything that does not fit.
//
// # What it promises
//
// For every admission of the range that is settled there is one *admitted* and one *usage* record, and a *served* one where
// the answer was complete; they speak of the same caller; the door counted no more than the worker, and as much where nothing
// was cut. For every source and epoch no sequence number is missing, none is there with two contents, and none is out of
// order. For every run of an engine its own counters grew by what its worker journaled, within bounds. Every usage costs what its
// price and its tokens make. What breaks this is a [Problem] with its admission, source, epoch and sequence. [Report.Balanced] only when there is
// none.
//
// Of two records with one id the one counts that [usage.Wins]; the same record twice is counted once, and told.
//
// # What is judged
//
// Only what can be judged. A request may still be open, and its records may be on their way, so an admission is open, and no
// problem, until its door's epoch is over or Options.Settle has passed. A gap counts when there is later evidence behind it:
// for Kafka, where the partitions of one batch come in any order, Traits.Slack numbers or Options.Settle later. An engine's counters
// are judged between readings that were taken while nothing ran.
//
// # What it does not promise
//
// A record that was altered is found by the digest that the one behind it names, and in the end by the signed checkpoint
// ([usage.Auditor]); that the key is the source's own only Options.Trusts can tell. Of a source that keeps no chain it is found
// only where another record contradicts it. What a source journaled after its
// last checkpoint can be missing without a gap; its admissions tell, unless all three records are gone. A *served* record that a killed worker took
// along is not told from one that was taken away: it is a note, bounded by the worker's last record and its restart.
//
// # Bounds
//
// Evidence is read once. What is more than 32 MiB goes into 256 temporary files by admission, about 300 bytes a record; memory
// holds one of these files at a time, one bit a record, and at most Options.Named problems. So 10 million records take about
// 3 GB of temporary disk and 200 MB of memory, and from Kafka, where neighbours in the chain are far apart, 1 GB more; a range with several times more should be taken hour by hour.
package balance
