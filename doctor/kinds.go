package doctor

import "slices"

// Kind is something that can be wrong. docs/doctor.md has the same table; a test holds the two against each other.
type Kind struct {
	ID       string
	Area     Area
	Severity Severity
	Wrong    string // what it means
	Mend     string
}

func kindOf(id string) (Kind, bool) {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.ID == id })
	if i < 0 {
		return Kind{}, false
	}
	return Kinds[i], true
}

// Kinds are all of them, by area.
var Kinds = slices.Concat(portKinds, certificateKinds, envoyKinds, workerKinds, storeKinds, otherKinds, kubeKinds)
