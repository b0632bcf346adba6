package test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// page is a page of the ops address, whatever its status.
func (u *up) page(t testing.TB, path string) string {
	t.Helper()
	return fetchPage(t, u.ops, path)
}

func fetchPage(t testing.TB, address, path string) string {
	t.Helper()
	page, err := readPage(address, path)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func readPage(address, path string) (string, error) {
	resp, err := http.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// serves is nil when an endpoint has workers that can be picked.
func (u *up) serves(endpoint string) error {
	page, err := readPage(u.ops, "/readyz")
	if err == nil && !strings.Contains(page, "ok   endpoint "+endpoint+":") {
		err = fmt.Errorf("no ready endpoint %s in %s", endpoint, page)
	}
	return err
}

// opsSays waits until a page holds a text.
func (u *up) opsSays(t testing.TB, path, text string) {
	t.Helper()
	eventually(t, factPatience, func() error {
		if page := u.page(t, path); !strings.Contains(page, text) {
			return fmt.Errorf("no %q in %s", text, page)
		}
		return nil
	})
}

// metric sums a metric over all its labels. It must be there, unless it is one of each worker and there is none.
func (u *up) metric(t testing.TB, name string) float64 {
	t.Helper()
	sum, found := 0.0, name == workerLoad
	for s := bufio.NewScanner(strings.NewReader(u.page(t, "/metrics"))); s.Scan(); {
		series, value, ok := strings.Cut(s.Text(), " ")
		if base, _, _ := strings.Cut(series, "{"); !ok || base != name {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		sum, found = sum+v, true
	}
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	return sum
}

const workerLoad = "spokegate_picker_worker_load"

// idle waits until the door holds nothing: no flight, no booking.
func (u *up) idle(t testing.TB, patience time.Duration) {
	t.Helper()
	eventually(t, patience, func() error {
		for _, name := range []string{"spokegate_flights_open", workerLoad} {
			if v := u.metric(t, name); v != 0 {
				return fmt.Errorf("%s is %v; without usage are %v", name, v, u.ledger.open())
			}
		}
		return nil
	})
}
