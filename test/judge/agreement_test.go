// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/aws"
	"github.com/slipway-k8s/slipway/internal/graph"
	"github.com/slipway-k8s/slipway/internal/model"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/internal/target/targettest"
)

func TestAgreementX(t *testing.T) {
	for _, x := range targettest.Topologies() {
		t.Run(x.Name, func(t *testing.T) {
			var views []view
			for range 2 {
				in := x.Input(t, regiontest.Name)
				g, fs := model.Build(in)
				if err := fs.Err(); err != nil {
					t.Fatal(err)
				}
				r := regiontest.Start(t)
				name := in.Cluster.Metadata.Name
				d := direct{cfg: r.Config(), known: func(r graph.Resource) graph.Resource { return r }}
				d.apply(t, aws.New(r.Config(), aws.Scope{
					Cluster: name, Region: regiontest.Name, RolePath: model.RolePath(name, regiontest.Name), KeyAlias: model.AliasName(name),
				}), g)
				views = append(views, look(t, r))
			}
			agree(t, views[0], views[1])
		})
	}
}
