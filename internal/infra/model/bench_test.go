// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"fmt"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// wide is the default cluster with n more worker groups.
func wide(b *testing.B, n int) model.Input {
	b.Helper()
	in := input(b, manifest.NewSetOptions{})
	workers := in.Groups[len(in.Groups)-1]
	for i := range n {
		g := workers
		g.Metadata.Name = fmt.Sprintf("more-%d", i)
		in.Groups = append(in.Groups, g)
		in.Images[g.Metadata.Name], in.Boot[g.Metadata.Name] = in.Images[workers.Metadata.Name], in.Boot[workers.Metadata.Name]
	}
	return in
}

// BenchmarkBuild makes the graph of the default cluster, and of one with 50 more groups.
func BenchmarkBuild(b *testing.B) {
	for _, groups := range []int{0, 50} {
		b.Run(fmt.Sprintf("groups=%d", 2+groups), func(b *testing.B) {
			in := wide(b, groups)
			for b.Loop() {
				build(b, in)
			}
		})
	}
}

// BenchmarkPlan plans the creation of the same clusters.
func BenchmarkPlan(b *testing.B) {
	for _, groups := range []int{0, 50} {
		b.Run(fmt.Sprintf("groups=%d", 2+groups), func(b *testing.B) {
			g := build(b, wide(b, groups))
			steps := 0
			for b.Loop() {
				p, fs := plan.Compute(g, nil, plan.Options{})
				if err := fs.Err(); err != nil {
					b.Fatal(err)
				}
				steps = len(p.Steps)
			}
			b.ReportMetric(float64(steps), "steps")
		})
	}
}
