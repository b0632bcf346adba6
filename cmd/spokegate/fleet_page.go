package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/policy"
)

// fleetStatus is a door's page /fleet: its workers as it knows them.
type fleetStatus struct {
	Door      string           `json:"door"`
	Spoke     string           `json:"spoke"`
	Version   string           `json:"version"`
	At        time.Time        `json:"at"`
	Envoy     bool             `json:"envoy_connected"`
	Endpoints []endpointStatus `json:"endpoints"` // of the policy
	Workers   []workerStatus   `json:"workers"`
}

type endpointStatus struct {
	Name     string `json:"name"`
	Workers  int    `json:"workers"`
	Pickable int    `json:"pickable"`
}

type workerStatus struct {
	Name          string      `json:"name"`
	Endpoint      string      `json:"endpoint"`
	State         string      `json:"state"`
	Pickable      bool        `json:"pickable"` // ready, of an endpoint of the policy, and Envoy has acknowledged it
	Reason        string      `json:"reason,omitempty"`
	Degraded      []string    `json:"degraded,omitempty"`
	Engine        string      `json:"engine"`
	Epoch         string      `json:"epoch"` // of the engine's run, since Joined at the latest
	Version       string      `json:"version,omitempty"`
	Address       string      `json:"address"`
	BlocksAddress string      `json:"blocks_address,omitempty"`
	BlockSize     uint32      `json:"block_size,omitempty"` // tokens
	Blocks        uint64      `json:"blocks,omitempty"`
	Index         string      `json:"index"`                  // how much the picker knows of what it holds: indexed, predictive or degraded
	IndexReason   string      `json:"index_reason,omitempty"` // why not indexed
	Role          string      `json:"role,omitempty"`         // prefill or decode; empty: both
	Ranks         uint32      `json:"ranks,omitempty"`        // data-parallel
	Running       uint32      `json:"running"`                // in the shim
	Load          *loadStatus `json:"engine_load,omitempty"`
	Joined        time.Time   `json:"joined"`
	Beat          time.Time   `json:"last_beat"`
}

type loadStatus struct {
	Running     uint32  `json:"running"`
	Waiting     uint32  `json:"waiting"`
	CacheUsed   float64 `json:"cache_used"` // 0 to 1
	Preemptions uint64  `json:"preemptions"`
}

// pages are those of a door for operators, beside what each role has.
func (d *door) pages() []page {
	picker := pickerPages{d.picker, d.policy, d.name, d.envoy.BodyLimit, ""}
	return append(picker.pages(), page{"GET /fleet", d.fleetPage()}, d.aboutPage(), envoyMetrics(newEnvoyAdmin(d.envoy.Admin, envoyPatience)))
}

// fleetPage serves it as JSON.
func (d *door) fleetPage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		st := newFleetStatus(d.fleet, d.policy.Load(), d.picker.Indexes())
		st.Door, st.Spoke, st.Version, st.At, st.Envoy = d.name, d.spoke, buildVersion(), time.Now(), d.control.Connected()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(st) // who asked may have left
	})
}

func newFleetStatus(f *fleet.Fleet, snap *policy.Snapshot, indexes []epp.Index) fleetStatus {
	st := fleetStatus{Endpoints: []endpointStatus{}, Workers: []workerStatus{}}
	pickable := map[string]bool{}
	if snap != nil {
		for _, e := range snap.Endpoints() {
			list := f.Pickable(e.Name)
			for _, w := range list {
				pickable[w.Name] = true
			}
			st.Endpoints = append(st.Endpoints, endpointStatus{Name: e.Name, Pickable: len(list)})
		}
	}
	for _, w := range f.View().Workers {
		for i := range st.Endpoints {
			if st.Endpoints[i].Name == w.Endpoint {
				st.Endpoints[i].Workers++
			}
		}
		k := newWorkerStatus(w, pickable[w.Name])
		i := indexOf(w, indexes)
		k.Index, k.IndexReason = i.State, i.Reason
		st.Workers = append(st.Workers, k)
	}
	return st
}

// indexOf is how much the picker knows of what a worker holds.
func indexOf(w fleet.Worker, indexes []epp.Index) epp.Index {
	for _, i := range indexes {
		if i.Endpoint == w.Endpoint && i.Addr == w.Addr {
			return i
		}
	}
	i := epp.Index{Endpoint: w.Endpoint, Addr: w.Addr, State: epp.Predictive, Cause: "starting", Reason: "it has not told anything yet"}
	if w.BlocksAddr == "" {
		i.Cause, i.Reason = "none", "it does not say where its blocks are announced"
	}
	return i
}

func newWorkerStatus(w fleet.Worker, pickable bool) workerStatus {
	said := w.Status()
	st := workerStatus{
		Name: w.Name, Endpoint: w.Endpoint, State: w.State.String(), Pickable: pickable, Reason: said.Reason, Degraded: slices.Clone(said.Degraded),
		Engine: w.Engine, Epoch: w.Epoch, Version: w.Version, Address: w.Addr, BlocksAddress: w.BlocksAddr, BlockSize: w.BlockSize,
		Blocks: w.Blocks, Role: w.Role, Ranks: w.Ranks, Running: said.Running, Joined: w.Joined, Beat: said.At,
	}
	if l := said.Load; l != nil {
		st.Load = &loadStatus{l.Running, l.Waiting, float64(l.CacheUsedPermille) / 1000, l.Preemptions}
	}
	return st
}
