package policy

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The forms of names. The schema gives the same to editors.
const (
	idForm      = `^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$`     // endpoints, teams, keys: safe in headers, file names and metrics
	modelForm   = `^[A-Za-z0-9][A-Za-z0-9._:@+/-]{0,127}$` // models: what clients write, with / and : as hubs of models do
	patternForm = `^[A-Za-z0-9][A-Za-z0-9._:@+/-]{0,127}\*?$|^\*$`
	fieldForm   = `^[A-Za-z_][A-Za-z0-9_]{0,63}$`
	hashForm    = `^[0-9A-Fa-f]{64}$`
	engineForm  = `^[A-Za-z0-9._/~][A-Za-z0-9._:@+/~=-]{0,255}$` // what engines call models: also paths, and hubs' names
	claimForm   = `^[!-~]{1,256}$`                               // claims and their values: also URLs
	labelForm   = `^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$`
	networkForm = `^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$`
)

var (
	modelRE   = regexp.MustCompile(modelForm)
	patternRE = regexp.MustCompile(patternForm)
	fieldRE   = regexp.MustCompile(fieldForm)
	engineRE  = regexp.MustCompile(engineForm)
	claimRE   = regexp.MustCompile(claimForm)
	labelRE   = regexp.MustCompile(labelForm)
)

// BadID says what is wrong with the name of an endpoint, a team, a key or an issuer; "" if nothing.
func BadID(s string) string {
	switch {
	case s == "":
		return "is missing; want a name"
	case !validID(s):
		return "is not a name: want up to 63 letters, digits and . _ @ -, beginning with a letter or digit"
	}
	return ""
}

// validID says whether s has idForm. It is cheap enough for every request.
func validID(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '@' && c != '-') {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 63
}

// badModel says what is wrong with a model's name; "" if nothing. A name that a URL path would change could be asked for
// in a body and not in GET /v1/models/NAME, so there is none.
func badModel(s string) string {
	switch {
	case s == "":
		return "is missing; want the name that requests give"
	case !modelRE.MatchString(s):
		return "is not a model's name: want up to 128 letters, digits and . _ : @ + / -, beginning with a letter or digit"
	case slices.ContainsFunc(strings.Split(s, "/"), func(part string) bool { return part == "" || part == "." || part == ".." }):
		return "is not a model's name: no part between slashes may be empty, \".\" or \"..\""
	}
	return ""
}

// matches says whether an entry of a models list, a name or a prefix with a final *, names the model.
func matches(pattern, model string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(model, prefix)
	}
	return pattern == model
}

func anyMatches(patterns []string, model string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, model) })
}

// label names an element of a list in a path: by its name where that is one, else by its index.
func label(list, name string, i int) string {
	if !modelRE.MatchString(name) {
		name = strconv.Itoa(i)
	}
	return list + "[" + name + "]"
}
