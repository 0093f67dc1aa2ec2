// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
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
	store  store.Store // that it was read from
	past   past
	// marks are those in AWS when its resources were read last; zero if the bearer does not exist.
	marks ownership.Marks
}

// ClusterID returns the cluster's id, once the session has read its ownership.
func (session *Session) ClusterID() string { return session.ownership.ID }

// ownsTags reports whether a resource with these tags belongs to the cluster. Before the session has read its
// ownership, resources with the id of any cluster of the name are others'.
func (session *Session) ownsTags(tags map[string]string) bool {
	return tags[awskind.TagCluster] == session.Name && session.ownership.OwnsTags(tags)
}

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
	if isLost := set.Cluster.Kind == ""; isLost || manifest.HasPodIdentity(set.Cluster) {
		session.Cloud.FindProviders(!isLost)
	}

	findFunction(ctx, session, s, set)

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

// CheckLeftovers returns an error if found, the resources of programs in a cluster of this name that would be
// deleted, are those of a cluster that the state store has never created. Such programs do not know the id.
func (session *Session) CheckLeftovers(ctx context.Context, found []plan.ActualResource) error {
	own := &session.ownership
	if own.past.any || len(found) == 0 {
		return nil
	}

	records, err := session.readJournal(ctx, own.store)
	if err != nil {
		return err
	}

	return own.owner.CheckLeftovers(found, slices.ContainsFunc(records, isStartedApply))
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

	past, err := session.readPast(ctx, s, record.ID)
	if err != nil {
		return err
	}

	record.ID = cmp.Or(record.ID, past.id)
	if record.ID, err = session.chooseID(record.ID, object); err != nil {
		return err
	}

	owner := ownership.Owner{
		Cluster:  session.Name,
		ID:       record.ID,
		Store:    s.URL(),
		Applied:  past.hasApplied,
		TakeOver: session.Env.TakeOver,
	}

	for _, token := range []string{record.Token, record.FormerToken} {
		if token != "" {
			owner.Tokens = append(owner.Tokens, token)
		}
	}

	session.Cloud.SetClusterID(record.ID)
	session.ownership = ownershipState{
		Ownership: record,
		loaded:    true,
		object:    object,
		owner:     owner,
		store:     s,
		past:      past,
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

// past is what the state store has applied of a cluster.
type past struct {
	// id of the cluster by the journal, if the state store has lost its other objects.
	id string
	// any is set if the state store has applied anything.
	any bool
	// hasApplied reports whether it has ever applied the resource with an address.
	hasApplied func(graph.Addr) bool
}

// everything returns the past of a cluster of which it is not known what was applied.
func everything() past { return past{any: true, hasApplied: func(graph.Addr) bool { return true }} }

// readPast returns what the state store has applied of the cluster. CloudFormation keeps its own record: the
// stack is checked instead. If the state store does not have the cluster, its journal tells.
func (session *Session) readPast(ctx context.Context, s store.Store, id string) (past, error) {
	if id == "" {
		return session.readPastFromJournal(ctx, s)
	}

	via, err := clusterstate.ReadProvisioner(ctx, s, session.Name)
	if err != nil {
		return past{}, err
	}

	last, object, err := clusterstate.ReadLastApplied(ctx, s, session.Name)
	if err != nil && object.ETag == "" {
		return past{}, err
	}

	readable := err == nil
	if !readable || via == clusterstate.CloudFormation { // a record that cannot be parsed is one, too
		return everything(), nil
	}

	return pastOf(last), nil
}

// pastOf returns the past of a cluster with a last-applied record.
func pastOf(last plan.LastApplied) past {
	known := map[graph.Addr]bool{}
	recordKind := awskind.DNSRecord{}.Kind().Name
	triedRecords := false

	for _, r := range last.Resources {
		known[r.Addr] = true
		restored, err := graph.FromProperties(awskind.DNSRecord{}, r.Properties)
		if record, ok := restored.(awskind.DNSRecord); r.Kind == recordKind && err == nil && ok {
			known[ownership.RecordAddr(record)] = true
		}
	}

	for _, attempt := range last.Attempts {
		for addr := range attempt.Steps {
			known[addr] = true
			triedRecords = triedRecords || plan.KindOf(addr) == recordKind // in a zone that is not recorded
		}
	}

	return past{any: len(known) > 0, hasApplied: func(a graph.Addr) bool {
		addr, _, _ := strings.Cut(string(a), "@") // a key that waits for its deletion
		return known[graph.Addr(addr)] || triedRecords && plan.KindOf(a) == recordKind
	}}
}

// readPastFromJournal returns the past of a cluster that the state store has lost, except for its journal. A
// cluster that was deleted since has none.
func (session *Session) readPastFromJournal(ctx context.Context, s store.Store) (past, error) {
	records, err := session.readJournal(ctx, s)
	if err != nil {
		return past{}, err
	}

	for _, r := range records { // newest first
		switch {
		case r.Plan == nil:
			continue
		case r.Operation == "delete" && r.State == operation.Succeeded:
			return past{}, nil
		}

		out := everything()
		out.id = r.ClusterID

		return out, nil
	}

	return past{}, nil
}

// maxJournalRecords is how many records are read to find out what the state store has applied.
const maxJournalRecords = 50

// readJournal returns the newest records of operations on the cluster, newest first. Some that cannot be read
// are left out.
func (session *Session) readJournal(ctx context.Context, s store.Store) ([]operation.Record, error) {
	records, err := session.Env.Coordinator(s, session.Name).ListRecords(ctx, maxJournalRecords)
	if len(records) > 0 {
		return records, nil
	}

	return nil, err
}

// isStartedApply reports whether an operation created or changed resources.
func isStartedApply(r operation.Record) bool { return r.Operation == "apply" && r.Plan != nil }

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
	state, err := operation.Fenced(ctx, session.State) // each operation changes the record's version
	if err != nil {
		return err
	}

	o, err := clusterstate.WriteOwnership(ctx, state, session.Name, next, own.object)
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
	if session.stateRevision > 0 {
		tags[graph.StateRevisionTag] = strconv.FormatInt(session.stateRevision, 10)
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
