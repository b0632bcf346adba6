package policy

import "testing"

func TestACounterIsTakenApart(t *testing.T) {
	for _, parts := range [][2]string{{"", ""}, {"research", "org/large"}, {"company:8:x/0:", ""}, {"a", "/1:b"}} {
		for _, l := range []Level{Platform, ModelLevel, TeamLevel, KeyLevel} {
			level, owner, model, ok := ParseCounter(counter(l, parts[0], parts[1]))
			if !ok || level != l.String() || owner != parts[0] || model != parts[1] {
				t.Errorf("%v %q: got %q %q %q %v", l, parts, level, owner, model, ok)
			}
		}
	}
	for _, bad := range []string{"", "team", "team/", "team/8:research", "team/9:research/0:", "team/-1:/0:", "team/0:/0:x", "team/x:/0:"} {
		if _, _, _, ok := ParseCounter(bad); ok {
			t.Errorf("%q passes for a counter", bad)
		}
	}
}
