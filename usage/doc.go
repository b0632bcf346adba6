// Package usage keeps the records of who used what: their form, the journal on local disk that holds them, its reader, and
// the forwarder that ships them to Kafka.
//
// # What it promises
//
// A record that [Spool.Flush] has acknowledged, or that [Stats] counts as Synced, is on disk (written and fsynced) and is
// found again by [Read] after a crash. Within one source and epoch the sequence numbers have no gap, whatever the disk does:
// a number is given to a record only by the one goroutine that writes, and a batch is written again, byte for byte and into a
// new segment, until the disk has taken it. So a number may be found twice on disk with the same content (a write that was
// reported as failed but had happened); the reader delivers it once, and reports two different contents under one number.
//
// [Spool.Append] never blocks and never touches the disk. Memory is bounded by the queue (Options.Queue records), disk by
// Options.MaxBytes. What these bounds refuse is counted as lost, by number and by reason, and nobody is made to wait for it.
//
// # What it does not promise
//
// A record that was appended but not yet written is gone when the process dies (a window of Options.WriteWindow), one that was
// not yet synced when the machine dies (Options.SyncWindow and one fsync). A spool deletes nothing: segments go when the
// forwarder has shipped them.
//
// # Shipping
//
// A [Forwarder] ships the journal of one source to Kafka, all its epochs, in order. It goes on only when all replicas have a
// record, tries for ever, and after a crash at any moment resumes at the last acknowledged record that it has noted (at most
// a quarter of a second before the crash). So Kafka may have a record twice, with the same id, and never misses one. What Kafka
// refuses for good (too large for its topic), or what is damaged on disk, does not hold up the rest: it is counted, logged
// and kept in aside.jsonl. A topic that is missing or forbidden does hold up the rest, as an outage does, and as a folder does
// that cannot be locked: nothing is lost, the spool grows to its bound, and an alert on the lag tells.
//
// TLS and SASL: see [KafkaSecurity]. A broker that does not let us in is like one that is away.
//
// Records of one team and kind stay in order in their partition, but for those sent twice. Memory is bounded by a few chunks
// of 1 MiB. A shipped segment stays for ForwarderConfig.KeepFor or KeepBytes. To ship a journal again, to another cluster
// say, remove shipped.json while no forwarder runs.
//
// # Checkpoints
//
// With Options.Checkpoint each record names the SHA-256 of the one before in its epoch, and now and then, and at its end, the
// source journals a checkpoint: a record that names the last digest and signs it with the source's Ed25519 key. Who trusts
// that key (the log tells its fingerprint at the start) has proof of every record up to there: an [Auditor] names one that was
// altered, and numbers without a gap tell one that was taken away. A process that was killed signs nothing more: the next start
// signs for it, by what is on disk. The writing goroutine does all of it; who appends pays nothing.
//
// What a checkpoint does not prove: that the source told the truth, or that nobody else had its key.
//
// # Refusals
//
// What a door refuses goes through [Refusals] into a spool of its own: under a flood one record stands for many, and their counts
// add up. The balance leaves these sources out, and where nobody ships them [Prune] lets the oldest go.
//
// # The files
//
//	DIR/<source, with / as _>/<epoch, 10 digits>-<segment, 6 digits>.log
//	                          checkpoint.key: of the source's signature, PKCS #8 in PEM, made at the first start
//	                          shipped.json, shipped.lock, aside.jsonl: the forwarder's
//
// One line a record: the CRC-32C of the JSON as 8 hexadecimal digits, a space, the JSON of [AppendJSON], a line feed.
// Every start of a source opens a new epoch, so nothing is ever written after a torn line.
package usage
