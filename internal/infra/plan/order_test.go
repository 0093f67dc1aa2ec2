// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// noting is a cloud in which an attachment takes a while, and which notes in which order things were begun
// and made.
type noting struct {
	*cloud
	began, ended chan graph.Addr
}

func (s noting) Create(ctx context.Context, t plan.Task) (plan.StepResult, error) {
	s.began <- t.Step.Addr
	if t.Step.Addr == "net/attachment" {
		time.Sleep(20 * time.Millisecond)
	}
	m, err := s.cloud.Create(ctx, t)
	s.ended <- t.Step.Addr
	return m, err
}

// TestOrderGoesThroughWhatIsThere: a load balancer needs a route, which is there, and the route needs the
// attachment of a gateway, which was detached. The load balancer waits for the attachment nevertheless.
func TestOrderGoesThroughWhatIsThere(t *testing.T) {
	g := &graph.Graph{}
	attachment := graph.Add(g, "attachment", net{CIDR: "a"})
	route := graph.Add(g, "route", net{CIDR: "b"}, attachment)
	graph.Add(g, "balancer", net{CIDR: "c"}, route)
	have := []plan.ActualResource{{Addr: "net/route", ID: "net-1", Resource: net{CIDR: "b"}}}
	p, fs := plan.Compute(g, have, plan.Options{})
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	c := noting{&cloud{things: map[string]plan.ActualResource{"net-1": have[0]}, made: map[string]int{}}, make(chan graph.Addr, 4), make(chan graph.Addr, 4)}
	if err := (plan.Applier{Cloud: c, Now: time.Now}).Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	close(c.began)
	var order []graph.Addr
	for a := range c.began {
		order = append(order, a)
	}
	if want := []graph.Addr{"net/attachment", "net/balancer"}; !slices.Equal(order, want) {
		t.Errorf("begun in the order %v, want %v", order, want)
	}
	if first := <-c.ended; first != "net/attachment" {
		t.Errorf("%s was made first", first)
	}
}
