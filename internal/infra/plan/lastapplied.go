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
	// LastAppliedVersion is the version of the format of [LastApplied].
	LastAppliedVersion = 1
	// maxKeptAttempts is the number of attempts in a record; the oldest are dropped.
	maxKeptAttempts = 20
)

// LastApplied is the record of the last successful apply. It distinguishes drift, a change made outside
// Slipway, from an edit of a manifest. It contains no secrets, as no resource does.
type LastApplied struct {
	// Version is [LastAppliedVersion]; set by [LastApplied.Encode].
	Version int `json:"version"`
	// Token is the fencing token of the operation that applied it.
	Token     int64     `json:"token"`
	AppliedAt time.Time `json:"when"`
	AppliedBy string    `json:"by"`   // person and machine, as in me@host
	Tool      string    `json:"tool"` // version of Slipway
	// Resources lists the applied resources with every reference resolved; empty until an apply succeeds.
	Resources []AppliedResource `json:"resources"`
	// Documents maps the manifests' keys in the state store to their hashes.
	Documents map[string]string `json:"documents,omitempty"`
	// Manifests are the applied manifests as YAML, with defaults. Empty in a record of a version that did not
	// keep them.
	Manifests string `json:"manifests,omitempty"`
	// MachineStore is the URL of the store that machines read.
	MachineStore string `json:"machineStore,omitempty"`
	// Objects lists the keys that were published in MachineStore.
	Objects []string `json:"objects,omitempty"`
	// Attempted are the manifests, as YAML with defaults, of the newest of Attempts that was an apply. It may have created
	// machines with them. Empty if that apply succeeded.
	Attempted string `json:"attempted,omitempty"`
	// Attempts lists the operations since then that did not succeed: their changes are not external ones. The
	// last 20 are kept.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// AppliedResource is one resource of a [LastApplied].
type AppliedResource struct {
	Addr graph.Addr `json:"address"`
	Kind string     `json:"kind"`
	// Properties are the values by CloudFormation's name, see [graph.FromProperties].
	Properties map[string]any `json:"properties"`
}

// Attempt is an operation that was started and may not have finished.
type Attempt struct {
	// Token is the fencing token of the operation.
	Token int64 `json:"token"`
	// Steps maps the addresses of its plan to actions.
	Steps map[graph.Addr]Action `json:"steps"`
}

// ParseLastApplied reads the output of [LastApplied.Encode]. Its errors complete a sentence that begins with
// the key. It rejects other versions.
func ParseLastApplied(body []byte) (LastApplied, error) {
	var a LastApplied
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&a); err != nil {
		return LastApplied{}, fmt.Errorf("is not a valid document: %w", err)
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return LastApplied{}, errors.New("has data after the end of its document")
	}

	if a.Version != LastAppliedVersion {
		return LastApplied{}, diag.WithHint(
			fmt.Errorf("has the unknown format version %d", a.Version),
			"use the version of slipway that applied last, or apply with this one",
		)
	}

	return a, nil
}

// Encode returns a as JSON with the current format version.
func (a LastApplied) Encode() ([]byte, error) {
	a.Version = LastAppliedVersion
	if a.Resources == nil {
		a.Resources = []AppliedResource{}
	}

	body, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode the last-applied record: %w", err)
	}

	return append(body, '\n'), nil
}

// WithAttempt returns a with an attempt to apply p, held under token.
func (a LastApplied) WithAttempt(token int64, p Plan) LastApplied {
	attempt := Attempt{Token: token, Steps: map[graph.Addr]Action{}}
	for _, s := range p.Steps {
		attempt.Steps[s.Addr] = s.Action
	}

	a.Attempts = append(slices.Clone(a.Attempts), attempt)
	if n := len(a.Attempts); n > maxKeptAttempts {
		a.Attempts = a.Attempts[n-maxKeptAttempts:]
	}

	return a
}

// AppliedResources returns the resources that p has applied, for a [LastApplied]. applied are those that were
// created or changed, as passed to [Applier.OnApplied]. A reference that is still unknown is an error.
func (p Plan) AppliedResources(applied map[graph.Addr]graph.Resource) ([]AppliedResource, error) {
	out := make([]AppliedResource, 0, len(p.desired))
	for _, w := range p.desired {
		r, ok := applied[w.Addr]
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

// ToGraph returns the applied resources as a graph, to be compared with the existing ones. kinds are the zero
// values of all kinds.
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
			return nil, fmt.Errorf("the last-applied record: invalid resource %s of kind %q", r.Addr, r.Kind)
		}

		filled, err := graph.FromProperties(z, r.Properties)
		if err != nil {
			return nil, fmt.Errorf("the last-applied record: %s: %w", r.Addr, err)
		}

		graph.Add(g, name, filled)
	}

	return g, nil
}
