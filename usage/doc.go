// Package usage keeps the records of who used what: their form, the journal on local disk that holds them, and its reader.
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
// A record that was appended but not yet synced is gone when the process or the machine dies (a window of
// Options.SyncWindow and one fsync). Nothing is deleted here: segments go when the one who shipped them removes them.
//
// # The files
//
//	DIR/<source, with / as _>/<epoch, 10 digits>-<segment, 6 digits>.log
//
// One line a record: the CRC-32C of the JSON as 8 hexadecimal digits, a space, the JSON of [AppendJSON], a line feed.
// Every start of a source opens a new epoch, so nothing is ever written after a torn line.
package usage
