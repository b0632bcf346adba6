package kv

// skipped is why something is not announced.
type skipped uint8

const (
	skipPayload skipped = iota // a payload that cannot be read
	skipEvent                  // an event that cannot be read, or of an unknown kind
	skipMedium                 // a medium that is not known
	skipGroup                  // a group that holds windows or states, not whole prefixes
	skipUnknown                // stored without tokens, and not known
	skipAbsent                 // removed, and not held
	skipHidden                 // not text alone: an image, a token that stands for none
	skipFull                   // forgotten, for the table was full
	skips
)

var skipNames = [skips]string{"payload", "event", "medium", "group", "unknown", "absent", "hidden", "full"}

func (s skipped) String() string { return skipNames[s] }
