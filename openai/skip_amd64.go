package openai

// skipPlain goes on through a plain run of a JSON string from i on, in steps of 16 bytes: at is where the next step would end
// the run, or where fewer are left. high says whether a byte before it is not ASCII. It needs SSE2, which each of these
// processors has, and takes a third of the time that shortStop takes.
//
//go:noescape
func skipPlain(b []byte, i int) (at int, high bool)
