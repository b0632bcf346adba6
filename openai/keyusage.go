package openai

import (
	"strconv"
	"time"
)

// KeyLimit is how one limit of a key stands. A limit that counts several things is listed once for each.
type KeyLimit struct {
	Level     string // team or key
	Owner     string // the team's name or the key's id
	Model     string // the model that it is for; empty: all
	Kind      string // what it counts, such as requests_per_day
	Max       int64
	Used      int64
	Remaining int64
	Reset     time.Duration // until all of Max remains, if nobody asks
	Period    time.Time     // when the minute, day or month began; zero: it has none
}

// KeyUsageBody returns the body of GET /v1/usage. Its members stay; more may come:
//
//	{"object": "usage", "key": ID, "team": NAME, "at": UNIX SECONDS, "limits": [
//	  {"level": "team" | "key", "owner": NAME, "model": NAME or null, "kind": KIND,
//	   "max": N, "used": N, "remaining": N, "reset_seconds": N.NNN, "period_start": UNIX SECONDS or null}, …]}
func KeyUsageBody(key, team string, at time.Time, limits []KeyLimit) []byte {
	b := appendQuoted([]byte(`{"object":"usage","key":`), key)
	b = appendQuoted(append(b, `,"team":`...), team)
	b = strconv.AppendInt(append(b, `,"at":`...), at.Unix(), 10)
	b = append(b, `,"limits":[`...)
	for i := range limits {
		if i > 0 {
			b = append(b, ',')
		}
		b = limits[i].append(b)
	}
	return append(b, "]}"...)
}

func (l *KeyLimit) append(b []byte) []byte {
	b = appendQuoted(append(b, `{"level":`...), l.Level)
	b = appendQuoted(append(b, `,"owner":`...), l.Owner)
	b = appendOrNull(append(b, `,"model":`...), l.Model)
	b = appendQuoted(append(b, `,"kind":`...), l.Kind)
	b = strconv.AppendInt(append(b, `,"max":`...), l.Max, 10)
	b = strconv.AppendInt(append(b, `,"used":`...), l.Used, 10)
	b = strconv.AppendInt(append(b, `,"remaining":`...), max(l.Remaining, 0), 10)
	reset := float64(roundUp(max(l.Reset, 0), time.Millisecond)) / 1000
	b = strconv.AppendFloat(append(b, `,"reset_seconds":`...), reset, 'f', 3, 64)
	b = append(b, `,"period_start":`...)
	if l.Period.IsZero() {
		return append(b, "null}"...)
	}
	return append(strconv.AppendInt(b, l.Period.Unix(), 10), '}')
}
