// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/destroy"
	"github.com/slipway-k8s/slipway/internal/cluster/planfile"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// PlanRequest asks for a plan that changes nothing.
type PlanRequest struct {
	Request

	// Destroy plans the deletion of the cluster.
	Destroy bool
	// Save is set if the plan will be saved, which a CloudFormation stack refuses.
	Save bool
}

// Planned is a plan of an apply or of a deletion.
type Planned struct {
	// Review is the plan.
	Review cluster.Review

	session     *cluster.Session
	documents   store.Store // has the documents that the plan was computed from
	state       store.Store
	options     cluster.PlanOptions
	run         *run                 // of an apply
	destruction *destroy.Destruction // of a deletion
}

// Plan plans an apply or a deletion. It takes no lock and changes nothing. If findings prevent the plan
// from being executed, it is returned together with the error.
func Plan(ctx context.Context, env *cluster.Env, req PlanRequest) (*Planned, error) {
	state, _, err := env.Stores.State(ctx)
	if err != nil {
		return nil, err
	}

	if req.Destroy {
		planned, err := planDestroy(ctx, env, state, req.Request)
		if err == nil && planned.destruction.IsUnknown() {
			return nil, clusterstate.NewNowhereError(req.Name)
		}

		return planned, err
	}

	r, err := load(ctx, env, req.Request)
	if err != nil {
		return nil, err
	}

	if r.usesStack && req.Save {
		return nil, diag.WithHint(
			errors.New("a plan of a CloudFormation stack cannot be saved"),
			"omit --out: apply asks before it changes anything",
		)
	}

	planned, err := r.plan(aws.WithRecordedHooks(ctx), state, req.Options)
	if planned == nil {
		return nil, err
	}

	if err := r.provisioner.Discard(ctx); err != nil {
		return nil, err
	}

	return planned, err
}

// plan proposes the changes of an apply. A plan with findings is returned together with the error.
func (r *run) plan(
	ctx context.Context,
	state store.Store,
	options cluster.PlanOptions,
) (*Planned, error) {
	review, err := r.provisioner.Propose(ctx)
	if review == nil {
		return nil, err
	}

	return &Planned{
		Review:    *review,
		session:   r.session,
		documents: r.desired.View,
		state:     state,
		options:   options,
		run:       r,
	}, err
}

// planDestroy plans a deletion, without CloudFormation.
func planDestroy(
	ctx context.Context,
	env *cluster.Env,
	state store.Store,
	req Request,
) (*Planned, error) {
	destruction, err := destroy.Plan(
		ctx,
		env,
		state,
		destroy.Request{Name: req.Name, DestroyData: req.Options.DestroyData},
	)
	if err != nil {
		return nil, err
	}

	return &Planned{
		Review:      destruction.Review,
		session:     destruction.Session(),
		documents:   state,
		state:       state,
		options:     req.Options,
		destruction: destruction,
	}, nil
}

// File returns the plan as it is saved, with fingerprints of everything that it depends on.
func (p *Planned) File(ctx context.Context) (planfile.File, error) {
	id, err := identify(ctx, p.session, p.state)
	if err != nil {
		return planfile.File{}, err
	}

	document := p.Review.Document()
	document.MonthlyCost = plan.MonthlyCost{} // changes with the size of a group, which an autoscaler owns
	doc, err := json.Marshal(document)
	if err != nil {
		return planfile.File{}, fmt.Errorf("encode the plan: %w", err)
	}

	docs, err := clusterstate.HashDocuments(ctx, p.documents, p.session.Name)
	env := p.session.Env

	return planfile.File{
		Tool:        env.Tool,
		CreatedAt:   env.Now().UTC(),
		CreatedBy:   env.Operator.Owner,
		Identity:    id,
		Destroy:     p.Review.Destroy,
		DestroyData: p.options.DestroyData,

		RecreateLostVolumes: p.options.RecreateLostVolumes,
		Plan:                doc,
		Documents:           docs,
		Actual:              p.Review.Plan.FingerprintActual(),
		Desired:             p.Review.Plan.FingerprintDesired(),
	}, err
}

// identify returns the account, region and state store that a plan of the session is for.
func identify(
	ctx context.Context,
	session *cluster.Session,
	state store.Store,
) (planfile.ClusterIdentity, error) {
	who, err := session.CallerIdentity(ctx)

	return planfile.ClusterIdentity{
		Cluster:   session.Name,
		Account:   who.Account,
		Partition: who.Partition,
		Region:    session.Config.Region,
		Endpoint:  sdk.ToString(session.Config.BaseEndpoint),
		State:     state.URL(),
	}, err
}
