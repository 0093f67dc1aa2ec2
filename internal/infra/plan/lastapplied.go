// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

const (
	// LastAppliedVersion is the version of an [LastApplied]'s format.
	LastAppliedVersion = 1
	// maxKeptAttempts is how many attempts are kept: of more, the oldest go.
	maxKeptAttempts = 20
)

// LastApplied is what was brought to AWS last, so that what somebody else changed since can be told from what a manifest
// now says otherwise. It holds no secret, as no resource does.
type LastApplied struct {
	Version int `json:"version"`
	// Token of the operation that brought it.
	Token     int64     `json:"token"`
	AppliedAt time.Time `json:"when"`
	AppliedBy string    `json:"by"`
	Tool      string    `json:"tool"`
	// Resources as they were brought to AWS, every reference resolved; none while no apply has succeeded yet.
	Resources []AppliedResource `json:"resources"`
	// Documents are hashes of the manifests that they come from, by key in the state store.
	Documents map[string]string `json:"documents,omitempty"`
	// MachineStore is the store that machines read, by its URL, and Objects the keys that were published in it.
	MachineStore string   `json:"machineStore,omitempty"`
	Objects      []string `json:"objects,omitempty"`
	// Attempts were begun since then and did not succeed: what they did is nobody else's doing.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// AppliedResource is one resource that was brought to AWS.
type AppliedResource struct {
	Addr       graph.Addr     `json:"address"`
	Kind       string         `json:"kind"`
	Properties map[string]any `json:"properties"`
}

// Attempt is an operation that set out to change something.
type Attempt struct {
	Token int64 `json:"token"`
	// Steps as address and action.
	Steps map[graph.Addr]Action `json:"steps"`
}

// ParseLastApplied reads what [Applied.Encode] wrote.
func ParseLastApplied(body []byte) (LastApplied, error) {
	var a LastApplied
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&a); err != nil {
		return LastApplied{}, fmt.Errorf("is no valid document: %w", err)
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return LastApplied{}, errors.New("has something after its document")
	}

	if a.Version != LastAppliedVersion {
		return LastApplied{}, diag.WithHint(
			fmt.Errorf("has version %d", a.Version),
			"use the slipway that applied last, or apply with this one",
		)
	}

	return a, nil
}

// Encode returns the bytes that are stored.
func (a LastApplied) Encode() ([]byte, error) {
	a.Version = LastAppliedVersion
	if a.Resources == nil {
		a.Resources = []AppliedResource{}
	}

	body, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode what was applied: %w", err)
	}

	return append(body, '\n'), nil
}

// WithAttempt returns a with an attempt added that carries out p.
func (a LastApplied) WithAttempt(token int64, p Plan) LastApplied {
	try := Attempt{Token: token, Steps: map[graph.Addr]Action{}}
	for _, s := range p.Steps {
		try.Steps[s.Addr] = s.Action
	}

	a.Attempts = append(slices.Clone(a.Attempts), try)
	if n := len(a.Attempts); n > maxKeptAttempts {
		a.Attempts = a.Attempts[n-maxKeptAttempts:]
	}

	return a
}

// AppliedResources returns what p has brought to AWS. made are the resources that were made or changed, as [Walk.OnApplied] told.
func (p Plan) AppliedResources(made map[graph.Addr]graph.Resource) ([]AppliedResource, error) {
	out := make([]AppliedResource, 0, len(p.desired))
	for _, w := range p.desired {
		r, ok := made[w.Addr]
		if !ok {
			r = w.Resource
		}

		if unknown := graph.Symbols(r); len(unknown) > 0 {
			return nil, fmt.Errorf("%s: no value for %s", w.Addr, unknown[0])
		}

		props := map[string]any{}
		for _, f := range graph.Fields(r) {
			props[f.Property] = f.Value
		}

		out = append(out, AppliedResource{Addr: w.Addr, Kind: r.Kind().Name, Properties: props})
	}

	return out, nil
}

// ToGraph returns what was applied as a graph, so that it can be compared with what exists. kinds are the zeros of all kinds.
func (a LastApplied) ToGraph(kinds []graph.Resource) (*graph.Graph, error) {
	zero := map[string]graph.Resource{}
	for _, k := range kinds {
		zero[k.Kind().Name] = k
	}

	g := &graph.Graph{}

	for _, r := range a.Resources {
		z, ok := zero[r.Kind]
		kind, name, cut := strings.Cut(string(r.Addr), "/")
		if !ok || !cut || kind != r.Kind || g.Node(r.Addr) != nil {
			return nil, fmt.Errorf("what was applied has a resource %s of kind %q", r.Addr, r.Kind)
		}

		filled, err := graph.FromProperties(z, r.Properties)
		if err != nil {
			return nil, fmt.Errorf("what was applied: %s: %w", r.Addr, err)
		}

		graph.Add(g, name, filled)
	}

	return g, nil
}
