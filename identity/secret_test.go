package identity

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

func TestASecretShowsItselfToNobody(t *testing.T) {
	s := NewSecret()
	data, err := json.Marshal(map[string]any{"a": s, "b": &s, "c": []Secret{s}})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("x", "secret", s, "all", []Secret{s}, "in", struct{ a Secret }{s})
	}
	text := string(data) + log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, x := range []any{s, &s, []Secret{s}, struct{ A Secret }{s}} {
			text += fmt.Sprintf(verb, x)
		}
	}
	hidden := struct{ a Secret }{s} // where printing cannot ask it
	text += fmt.Sprintf("%v %+v %#v", hidden, hidden, &hidden)
	key := s.Key()
	for _, form := range []string{string(key), fmt.Sprint(key), fmt.Sprintf("%x", key), fmt.Sprintf("%d", key[:8]), base64.StdEncoding.EncodeToString(key)} {
		if strings.Contains(text, strings.Trim(form, "[]")) {
			t.Fatalf("it is told: %s", text)
		}
	}
	again, err := SecretOf(s.ID(), key)
	if err != nil || again.ID() != s.ID() || !slices.Equal(again.Key(), key) || again.of.inner != s.of.inner || again.of.outer != s.of.outer {
		t.Errorf("told to a worker: %v", err)
	}
	for name, c := range map[string]struct {
		id  string
		key []byte
	}{
		"no id": {"", key}, "a short id": {s.ID()[1:], key}, "an id of another alphabet": {"::::::::::A", key}, "a short key": {s.ID(), key[1:]}, "no key": {s.ID(), nil},
	} {
		if _, err := SecretOf(c.id, c.key); err == nil || strings.Contains(err.Error(), string(key[1:])) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
