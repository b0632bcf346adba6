package flight

// revoked is the anomaly of a request that was cut because its key was revoked while it ran.
const revoked = "revoked"

// cutoff names an open flight to whoever can cut it.
type cutoff struct{ endpoint, admission string }

// Revoke has every open flight cut whose key is revoked, and returns how many of them are new: they are marked once, and
// their usage records say "revoked". isRevoked is asked once a key, under the table's lock: it must not block or call the
// table. cut is called outside of it.
//
// A flight that is still open is cut again by the next call: a cut that overtook its request on the way to the worker did
// nothing, and a request that was judged by the policy before may open its flight after a call. So call it when a policy
// comes into force, and then every second.
func (t *Table) Revoke(isRevoked func(key string) bool, cut func(endpoint, admission string)) (marked int) {
	t.mu.Lock()
	list, marked := t.core.revoke(isRevoked)
	t.mu.Unlock()
	for _, c := range list {
		cut(c.endpoint, c.admission)
	}
	return marked
}

func (c *core) revoke(isRevoked func(key string) bool) (list []cutoff, marked int) {
	known := map[string]bool{}
	for e := c.open.Front(); e != nil; e = e.Next() {
		f := e.Value.(*flight)
		is, asked := known[f.admission.Key]
		if !asked {
			is = isRevoked(f.admission.Key)
			known[f.admission.Key] = is
		}
		if !is {
			continue
		}
		if !f.revoked {
			f.revoked = true
			marked++
		}
		list = append(list, cutoff{f.admission.Endpoint, f.admission.ID})
	}
	return list, marked
}
