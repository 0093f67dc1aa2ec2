// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/ownership"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// revisionMark is the revision in AWS of the documents of a cluster that an operator signed or
// applied last, and the resource that has it, [ownership.Bearer]: a tag, out of reach of those who
// can only write to the store. It is zero for a store in a folder, which works without AWS: whoever
// can write there can replace the keys too. See docs/design/0022.
type revisionMark struct {
	// revision is zero if AWS has none.
	revision int64

	cluster string
	api     *ec2.Client
	owner   ownership.Owner
	// bearers are the resources of this cluster that have the mark, or get it. There is none before
	// the first apply.
	bearers []ownership.Marks
}

// readRevisionMark reads the mark of a cluster. region is that in its verified manifest.
func readRevisionMark(
	ctx context.Context,
	env *Env,
	state store.Store,
	name, region string,
) (revisionMark, error) {
	if !strings.HasPrefix(state.URL(), "s3://") {
		return revisionMark{}, nil
	}

	own, _, err := clusterstate.ReadOwnership(ctx, state, name)
	if err != nil {
		return revisionMark{}, err
	}

	cfg, err := env.AWS(ctx, cmp.Or(env.Region, region))
	if err != nil {
		return revisionMark{}, err
	}

	m := revisionMark{cluster: name, api: ec2.NewFromConfig(cfg)}
	m.owner = ownership.Owner{Cluster: name, ID: own.ID, Store: state.URL(), TakeOver: env.TakeOver}
	if own.Token != "" {
		m.owner.Tokens = []string{own.Token, own.FormerToken}
	}

	pages := ec2.NewDescribeVolumesPaginator(m.api, &ec2.DescribeVolumesInput{
		Filters: driver.NewFilters("tag:"+awskind.TagCluster, name),
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return m, fmt.Errorf("read the accepted revision of the documents of cluster %s: %w", name, err)
		}

		for _, volume := range page.Volumes {
			m = m.with(own, volume)
		}
	}

	return m, nil
}

// with returns the mark with that of a volume with the cluster's name. Whose it is, its tags tell:
// the record of the cluster's id is in the store, where somebody may have changed it, so a volume
// that this store has marked counts too.
func (m revisionMark) with(own clusterstate.Ownership, volume ec2types.Volume) revisionMark {
	tags := driver.FromEC2Tags(volume.Tags)
	isOwn := own.OwnsTags(tags)
	if !isOwn && tags[graph.StateStoreTag] != m.owner.Store {
		return m
	}

	revision, err := strconv.ParseInt(tags[graph.StateRevisionTag], 10, 64)
	if err == nil { // else it has none
		m.revision = max(m.revision, revision)
	}

	gone := []ec2types.VolumeState{ec2types.VolumeStateDeleting, ec2types.VolumeStateDeleted}
	isGone := slices.Contains(gone, volume.State)
	if !isOwn || isGone || tags[awskind.TagAddress] != string(ownership.Bearer) {
		return m
	}

	m.bearers = append(m.bearers, ownership.Marks{
		Resource: ownership.Resource{
			Addr:      ownership.Bearer,
			ID:        sdk.ToString(volume.VolumeId),
			ClusterID: own.ID,
		},
		Store:    tags[graph.StateStoreTag],
		Token:    tags[graph.OwnershipTokenTag],
		Revision: revision,
	})

	return m
}

// checkCopy returns an error if another copy of the state store has changed the cluster since this
// one did: the mark is that of the other copy.
func (m revisionMark) checkCopy() error {
	for _, b := range m.bearers {
		if err := m.owner.CheckMarks(b); err != nil {
			return err
		}
	}

	return nil
}

// checkNotOlder returns an error if documents are older than the mark, or are not signed although
// others were. To take a cluster over means that they may be.
func (m revisionMark) checkNotOlder(
	ctx context.Context,
	state store.Store,
	signed clusterstate.Signed,
) error {
	if m.owner.TakeOver != "" || signed.Revision >= m.revision {
		return nil
	}

	return newOlderError(ctx, state, m.cluster, signed, m.revision)
}

// newOlderError returns the error about documents that are older than those that were accepted
// last. An operator may have changed them after they were read.
func newOlderError(
	ctx context.Context,
	state store.Store,
	name string,
	signed clusterstate.Signed,
	accepted int64,
) error {
	now, err := clusterstate.ReadSignature(ctx, state, name)
	if err == nil && now.Revision >= accepted && now.Object.ETag != signed.Object.ETag {
		return diag.WithHint(
			fmt.Errorf("another process changed the documents of cluster %s: %w", name, store.ErrConflict),
			"rerun; if that does not help, somebody has changed the copies of documents: delete "+
				name+"/index.json in "+state.URL(),
		)
	}

	if !signed.Exists() {
		return clusterstate.NewMissingSignatureError(name, state)
	}

	return clusterstate.NewRollbackError(name, state, accepted)
}

// isWritable reports whether this store may write the mark: it has changed the cluster in AWS
// itself, and there is a resource that has or gets the mark. What Terraform has created is left
// alone, which would remove the mark again.
func (m revisionMark) isWritable() bool { return len(m.bearers) > 0 && m.owner.Tokens != nil }

// write writes a revision that was signed. It never lowers the mark. The caller has checked that it
// holds the lock.
//
// The signature is written first: if the program is killed in between, AWS has an earlier revision,
// with which the documents are accepted. The other way round, nobody could work with them.
func (m revisionMark) write(ctx context.Context, revision int64) error {
	if !m.isWritable() {
		return nil
	}

	var ids []string
	for _, b := range m.bearers {
		if b.Revision < revision {
			ids = append(ids, b.Resource.ID)
		}
	}

	if len(ids) == 0 {
		return nil
	}

	_, err := m.api.CreateTags(ctx, &ec2.CreateTagsInput{
		Resources: ids,
		Tags: []ec2types.Tag{{
			Key:   sdk.String(graph.StateRevisionTag),
			Value: sdk.String(strconv.FormatInt(revision, 10)),
		}},
	})
	if err == nil {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf(
			"the documents of cluster %s are written and signed, but AWS lacks their revision %d: %w",
			m.cluster,
			revision,
			err,
		),
		"fix the cause, and rerun or run: slipway apply "+m.cluster+
			"; until then, whoever can write to the store can restore the earlier documents",
	)
}

// writeFenced is write for a caller whose lease may have ended meanwhile: guarded is the state store while it holds the lock.
func (m revisionMark) writeFenced(ctx context.Context, guarded store.Store, revision int64) error {
	if _, err := operation.Fenced(ctx, guarded); err != nil {
		return err
	}

	return m.write(ctx, revision)
}

// MarkSigned writes the revision of documents that are signed to AWS, if a command that was killed
// has not done it.
func (env *Env) MarkSigned(ctx context.Context, c SignedChange) error {
	if !c.Before.Exists() {
		return nil
	}

	s, _, err := env.Stores.State(ctx)
	if err != nil {
		return err
	}

	isMarked := func(ctx context.Context) (revisionMark, bool, error) {
		m, err := readRevisionMark(ctx, env, s, c.Cluster, c.Region)
		if err == nil {
			err = m.checkNotOlder(ctx, s, c.Before)
		}

		return m, !m.isWritable() || m.revision >= c.Before.Revision || m.checkCopy() != nil, err
	}

	if _, done, err := isMarked(ctx); done || err != nil {
		return err
	}

	if _, err := env.openAuthority(ctx, c.Cluster, c.Before.Issuer); err != nil {
		return err
	}

	req := OperationRequest{Store: s, Cluster: c.Cluster, Kind: "sign"}

	write := func(ctx context.Context, _ *operation.Operation, _ store.Store) error {
		m, done, err := isMarked(ctx) // others may have changed it before the lock was taken
		if done || err != nil {
			return err
		}

		return m.write(ctx, c.Before.Revision)
	}

	return env.RunOperation(ctx, req, write)
}
