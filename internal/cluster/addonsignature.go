// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// CheckSigner checks the signature of documents that no plan reads, such as those of add-ons, which were compared with it:
// it is that of the cluster's own Kubernetes CA, whose key decides, it was not deleted, and it is not older than what was
// applied last. See docs/design/0022.
func CheckSigner(ctx context.Context, env *Env, c v1alpha1.Cluster, signed clusterstate.Signed) error {
	name := c.Metadata.Name
	state, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return err
	}

	ca, err := pki.OpenCA(ctx, state, sealer, name, pki.KubernetesCA)
	if err != nil {
		return err
	}

	if signed.Exists() && !bytes.Equal(ca.Issuer(), signed.Issuer) {
		return clusterstate.NewAuthorityError(name, state, ca.Issuer(), signed.Issuer)
	}

	applied, err := readAppliedRevision(ctx, env, state, c)
	if err != nil {
		return err
	}

	switch {
	case !signed.Exists() && (applied > 0 || ca.Key().SignsState()):
		return clusterstate.NewMissingSignatureError(name, state)
	case signed.Revision < applied:
		return clusterstate.NewRollbackError(name, state, applied)
	case !signed.Exists():
		var findings diag.Findings
		findings.Warnf(
			"cluster/"+name,
			"",
			"check that the documents of its add-ons are yours; the next apply of the cluster signs them",
			"has no signature in %s: whoever can write there could have changed the documents of its add-ons",
			state.URL(),
		)
		env.Warn(findings)
	}

	return nil
}

// readAppliedRevision returns the revision of the documents that were applied last, which AWS has; zero if it has none. A
// store in a folder works without AWS, and whoever can write there can replace the keys too.
func readAppliedRevision(ctx context.Context, env *Env, state store.Store, c v1alpha1.Cluster) (int64, error) {
	if !strings.HasPrefix(state.URL(), "s3://") {
		return 0, nil
	}

	own, _, err := clusterstate.ReadOwnership(ctx, state, c.Metadata.Name)
	if err != nil {
		return 0, err
	}

	cfg, err := env.AWS(ctx, cmp.Or(env.Region, c.Spec.CloudProvider.AWS.Region))
	if err != nil {
		return 0, err
	}

	var out int64
	filters := driver.NewFilters("tag:"+awskind.TagCluster, c.Metadata.Name)
	filters = append(filters, driver.NewFilters("tag-key", graph.StateRevisionTag)...)
	pages := ec2.NewDescribeVolumesPaginator(ec2.NewFromConfig(cfg), &ec2.DescribeVolumesInput{Filters: filters})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, fmt.Errorf("read the revision of cluster %s that was applied last: %w", c.Metadata.Name, err)
		}

		for _, volume := range page.Volumes {
			tags := driver.FromEC2Tags(volume.Tags)
			revision, err := strconv.ParseInt(tags[graph.StateRevisionTag], 10, 64)
			if err != nil || !own.OwnsTags(tags) {
				continue // of another cluster of this name
			}

			out = max(out, revision)
		}
	}

	return out, nil
}
