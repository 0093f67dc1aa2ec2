// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

const (
	// gateTimeout is the default limit of one check.
	gateTimeout = 10 * time.Second
	// parallelGates is how many checks run at the same time.
	parallelGates = 5
	// maxGateBody is how much of a response is read, so that its connection can be used again.
	maxGateBody = 64 << 10
)

// RunCommand runs a program of the operator's computer with its arguments. It returns what the program printed.
type RunCommand func(ctx context.Context, argv []string) (string, error)

// gateChecker checks the gates of the manifests.
type gateChecker struct {
	client kubernetes.Interface
	http   http.RoundTripper
	run    RunCommand // nil: commands are refused
}

// addTo adds the gates that do not pass to an observation.
func (c gateChecker) addTo(ctx context.Context, all allSettings, o *rollout.Observation) {
	o.FailedGates = append(o.FailedGates, c.failed(ctx, all.gates)...)
	for i := range o.Groups {
		g := &o.Groups[i]
		g.FailedGates = c.failed(ctx, all.of(g.Name).gates)
	}
}

// failed returns why gates do not pass, in their order.
func (c gateChecker) failed(ctx context.Context, gates []v1alpha1.Gate) []string {
	results := make([]error, len(gates))
	var checks errgroup.Group
	checks.SetLimit(parallelGates)
	for i, g := range gates {
		checks.Go(func() error {
			limit, err := parseWait(g.Timeout, gateTimeout)
			if err != nil {
				limit = gateTimeout
			}

			limited, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			results[i] = c.check(limited, g)

			return nil
		})
	}

	_ = checks.Wait() // the results are errors themselves
	var out []string
	for i, g := range gates {
		if err := results[i]; err != nil {
			out = append(out, fmt.Sprintf("gate %s: %s", g.Name, err))
		}
	}

	return out
}

// check returns why one gate does not pass.
func (c gateChecker) check(ctx context.Context, g v1alpha1.Gate) error {
	switch {
	case g.Deployment != "":
		return c.checkDeployment(ctx, g.Deployment)
	case g.URL != "":
		return c.checkURL(ctx, g.URL)
	case c.run == nil:
		return fmt.Errorf("command %s cannot be run here", g.Command[0])
	}

	output, err := c.run(ctx, g.Command)
	if err == nil {
		return nil
	}

	lines := strings.Split(strings.TrimSpace(output), "\n")

	return fmt.Errorf("command %s: %w: %s", g.Command[0], err, lines[len(lines)-1])
}

// checkDeployment returns why not all replicas of a Deployment are available.
func (c gateChecker) checkDeployment(ctx context.Context, name string) error {
	namespace, short, _ := strings.Cut(name, "/")
	d, err := c.client.AppsV1().Deployments(namespace).Get(ctx, short, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read deployment %s: %w", name, err)
	}

	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}

	if d.Status.ObservedGeneration < d.Generation || d.Status.AvailableReplicas < want {
		return fmt.Errorf(
			"deployment %s has %d of %d replicas available",
			name,
			d.Status.AvailableReplicas,
			want,
		)
	}

	return nil
}

// checkURL returns why a URL does not answer with success.
func (c gateChecker) checkURL(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}

	client := http.Client{Transport: c.http}
	answer, err := client.Do(req)
	if err != nil {
		return err // names method and URL
	}

	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxGateBody)) // only the status matters
	_ = answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("GET %s: %s", url, answer.Status)
	}

	return nil
}
