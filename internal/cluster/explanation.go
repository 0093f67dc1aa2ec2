// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/cluster/explain"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// ExplainSteps returns the steps of a plan of d with explanations. rolls is set if the provisioner replaces
// machines. It reads the published node documents that d replaces; those that cannot be read are shown by
// their hashes.
func (session *Session) ExplainSteps(
	ctx context.Context,
	d *Desired,
	steps []plan.Step,
	rolls bool,
) []plan.Step {
	in := explain.Input{Graph: d.Graph, Rolls: rolls, Tool: session.Env.Tool}
	documents := d.newDocuments()
	if slices.ContainsFunc(steps, changesUserData) {
		documents = session.readDocuments(ctx, d)
		in.FormerTool = session.lastApplied.Tool
	}

	in.Document = func(key string) ([]byte, bool) {
		body, ok := documents[key]
		return body, ok
	}

	return explain.Steps(steps, in)
}

func changesUserData(s plan.Step) bool {
	return slices.ContainsFunc(s.Changes, func(c plan.Change) bool {
		return c.Property == explain.UserDataProperty
	})
}

// maxDocumentReads limits the node documents that are read at a time.
const maxDocumentReads = 16

// newDocuments returns the node documents that machines will have, by key.
func (d *Desired) newDocuments() map[string][]byte {
	out := map[string][]byte{}
	for _, o := range d.MachineObjects {
		out[o.Key] = o.Body
	}

	return out
}

// readDocuments returns the node documents that machines have, and those that they will have, by key. Those
// that cannot be read are left out.
func (session *Session) readDocuments(ctx context.Context, d *Desired) map[string][]byte {
	out := d.newDocuments()
	last, err := session.readLastApplied(ctx, d.View)
	if err != nil {
		return out
	}

	// The goroutines write to out, so what is missing is determined before the first of them starts.
	missing := slices.DeleteFunc(slices.Clone(last.Objects), func(key string) bool {
		_, known := out[key]
		return known || !strings.Contains(key, "/documents/")
	})

	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxDocumentReads)

	for _, key := range missing {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			o, err := d.MachineStore.Get(ctx, key)
			if err != nil {
				return // deleted; the hashes remain
			}

			mu.Lock()
			defer mu.Unlock()
			out[key] = o.Body
		})
	}

	wg.Wait()

	return out
}
