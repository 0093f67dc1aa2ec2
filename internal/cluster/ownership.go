// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/aws/cleanup"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/ownership"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// ownershipState is what a session knows about whose cluster it is.
type ownershipState struct {
	clusterstate.Ownership
	loaded bool
	object store.Object // of the record; zero if there is none
	owner  ownership.Owner
	// applied is set if the state store has ever applied the cluster.
	applied bool
	// marks are those in AWS when its resources were read last; zero if the bearer does not exist.
	marks ownership.Marks
}

// ClusterID returns the cluster's id, once the session has read its ownership.
func (session *Session) ClusterID() string { return session.ownership.ID }

// ReadResources returns the cluster's resources in AWS, after it has read from s which cluster it is and where
// it may have DNS records. Resources of another cluster of the same name are an error, see package ownership.
func (session *Session) ReadResources(
	ctx context.Context,
	s store.Store,
	set manifest.Set,
) ([]plan.ActualResource, error) {
	if err := session.readOwnership(ctx, s); err != nil {
		return nil, err
	}

	session.addRecordZones(ctx, s, set)

	return session.ReadAgain(ctx)
}

// ReadAgain is ReadResources for a session that has read the ownership before.
func (session *Session) ReadAgain(ctx context.Context) ([]plan.ActualResource, error) {
	if !session.ownership.loaded {
		return nil, errors.New("the ownership of the cluster was not read")
	}

	actual, err := session.Cloud.Read(ctx)
	if err != nil {
		return nil, err
	}

	session.ownership.marks, _ = ownership.MarksOf(actual)

	return actual, session.ownership.owner.Check(actual)
}

// CheckLeftovers returns an error if AWS has resources of programs in a cluster of this name, which the state
// store has never created.
func (session *Session) CheckLeftovers(found cleanup.Leftovers) error {
	all := append(append([]plan.ActualResource{}, found.Resources...), found.Data...)
	return session.ownership.owner.CheckLeftovers(all, session.ownership.applied)
}

// CheckStack returns an error if a CloudFormation stack with the cluster's stack name belongs to another
// cluster. A stack without an id belongs to this one if s records that it has created it.
func (session *Session) CheckStack(ctx context.Context, s store.Store, info stack.Info) error {
	if phase := stack.PhaseOf(info.Status); phase == stack.PhaseAbsent || phase == stack.PhaseReview {
		return nil // it has no resources, and no tags yet
	}

	if err := session.readOwnership(ctx, s); err != nil {
		return err
	}

	via, err := clusterstate.ReadProvisioner(ctx, s, session.Name)
	if err != nil {
		return err
	}

	r := ownership.Resource{
		Addr:      graph.Addr("stack/slipway-" + session.Name),
		ID:        info.ID,
		ClusterID: info.Tags[awskind.TagClusterID],
	}

	return session.ownership.owner.CheckTags(r, via == clusterstate.CloudFormation)
}

// MarkCreated is MarkOwnership for resources that were created outside [Session.Walk].
func (session *Session) MarkCreated(ctx context.Context) error {
	if session.Operation == nil || session.ownership.marks.Resource.ID != "" {
		return nil // it was marked before
	}

	if _, err := session.ReadAgain(ctx); err != nil {
		return err
	}

	return session.MarkOwnership(ctx)
}

// readOwnership reads, once, which cluster the state store means and what it has applied of it.
func (session *Session) readOwnership(ctx context.Context, s store.Store) error {
	if session.ownership.loaded {
		return nil
	}

	record, object, err := clusterstate.ReadOwnership(ctx, s, session.Name)
	if err != nil {
		return err
	}

	if record.ID, err = session.chooseID(record.ID, object); err != nil {
		return err
	}

	applied, known, err := readAppliedAddresses(ctx, s, session.Name)
	if err != nil {
		return err
	}

	owner := ownership.Owner{
		Cluster:  session.Name,
		ID:       record.ID,
		Store:    s.URL(),
		Applied:  applied,
		TakeOver: session.Env.TakeOver,
	}

	for _, token := range []string{record.Token, record.FormerToken} {
		if token != "" {
			owner.Tokens = append(owner.Tokens, token)
		}
	}

	session.ownership = ownershipState{
		Ownership: record,
		loaded:    true,
		object:    object,
		owner:     owner,
		applied:   known,
	}

	return nil
}

// chooseID returns the id of the cluster: the recorded one, or without a record the one that is taken over.
func (session *Session) chooseID(recorded string, object store.Object) (string, error) {
	wanted := session.Env.TakeOver
	switch {
	case wanted == "", wanted == ownership.Unmarked, wanted == recorded:
		return recorded, nil
	case !clusterstate.IsClusterID(wanted):
		return "", diag.WithHint(
			fmt.Errorf("--take-over %s is not the id of a cluster", wanted),
			"give the id that the error names, of 16 characters, or "+ownership.Unmarked,
		)
	case object.ETag == "":
		return wanted, nil
	}

	return "", diag.WithHint(
		fmt.Errorf("cluster %s of this state store has the id %s: it cannot take over %s",
			session.Name, recorded, wanted),
		"give the cluster of this state store another name",
	)
}

// readAppliedAddresses returns whether the state store has ever applied the resource with an address, and
// whether it has applied any. A cluster that CloudFormation creates keeps no complete record: its stack is
// checked instead.
func readAppliedAddresses(
	ctx context.Context,
	s store.Store,
	name string,
) (func(graph.Addr) bool, bool, error) {
	via, err := clusterstate.ReadProvisioner(ctx, s, name)
	if err != nil {
		return nil, false, err
	}

	last, object, err := clusterstate.ReadLastApplied(ctx, s, name)
	if err != nil && object.ETag == "" {
		return nil, false, err
	}

	if err != nil || via == clusterstate.CloudFormation { // a record that cannot be parsed is one, too
		return func(graph.Addr) bool { return true }, true, nil
	}

	known := map[graph.Addr]bool{}
	for _, r := range last.Resources {
		known[r.Addr] = true
	}

	for _, attempt := range last.Attempts {
		for addr := range attempt.Steps {
			known[addr] = true
		}
	}

	return func(a graph.Addr) bool {
		addr, _, _ := strings.Cut(string(a), "@") // a key that waits for its deletion
		return known[graph.Addr(addr)]
	}, len(known) > 0, nil
}

// claimOwnership records the token that this operation will write to AWS. AWS gets it by MarkOwnership: if the
// program is killed in between, AWS still has the former one, which the record has too.
func (session *Session) claimOwnership(ctx context.Context, view *store.View) error {
	own := &session.ownership
	if own.ID == "" || session.State == nil {
		return nil // nothing of the cluster is in the state store
	}

	next := own.Ownership
	next.FormerToken = own.Token
	if own.marks.Token != "" {
		next.FormerToken = own.marks.Token
	}

	next.Token = clusterstate.NewOwnershipToken()
	o, err := clusterstate.WriteOwnership(ctx, session.State, session.Name, next, own.object)
	if err != nil {
		return err
	}

	if view != nil {
		view.AddObject(o)
	}

	own.Ownership = next
	own.object = o
	own.owner.Tokens = []string{next.Token, next.FormerToken}

	return nil
}

// MarkOwnership writes the token and the address of the state store to AWS before anything else is changed. If
// the resource that has them does not exist yet, it is created with them.
func (session *Session) MarkOwnership(ctx context.Context) error {
	own := &session.ownership
	if session.Operation == nil || own.Token == "" {
		return nil
	}

	tags := map[string]string{
		graph.OwnershipTokenTag: own.Token,
		graph.StateStoreTag:     session.describeStore(),
	}
	session.Cloud.AddTagsOnCreate(ownership.Bearer, tags)
	if own.marks.Resource.ID == "" {
		return nil
	}

	now, err := session.Cloud.ReadTags(ctx, own.marks.Resource.ID)
	if err != nil {
		return err
	}

	if token := now[graph.OwnershipTokenTag]; token != own.marks.Token && token != own.Token {
		owner := own.owner
		owner.TakeOver = "" // it was approved for what was there then

		return owner.CheckMarks(ownership.Marks{
			Resource: own.marks.Resource,
			Store:    now[graph.StateStoreTag],
			Token:    token,
		})
	}

	return session.Cloud.SetTags(ctx, own.marks.Resource.ID, tags)
}

// maxTagValue is EC2's limit for the value of a tag, in characters.
const maxTagValue = 256

// describeStore returns where the state of the cluster is, for operators of other stores. A folder is one of
// a machine.
func (session *Session) describeStore() string {
	url := session.ownership.owner.Store
	if !strings.HasPrefix(url, "s3://") {
		url += ownership.OnMachine + session.Env.Operator.Owner
	}

	return url[:min(len(url), maxTagValue)]
}
