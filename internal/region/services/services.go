// SPDX-License-Identifier: Apache-2.0

// Package services builds the AWS services of a local region and connects them: EC2 asks IAM for instance
// profiles, Auto Scaling launches instances through EC2, CloudFormation calls all the others. It is the only
// place that wires services: `slipway region start` and the tests (package regiontest) both use it. It does
// not know what runs the machines or the network: Config has an interface for each.
package services

import (
	"context"
	"crypto/rand"
	_ "embed" // for the model
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/autoscaling"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation"
	"github.com/slipway-k8s/slipway/internal/region/cloudwatchlogs"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/ecr"
	"github.com/slipway-k8s/slipway/internal/region/elbv2"
	"github.com/slipway-k8s/slipway/internal/region/eventbridge"
	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/kms"
	"github.com/slipway-k8s/slipway/internal/region/lambda"
	"github.com/slipway-k8s/slipway/internal/region/route53"
	"github.com/slipway-k8s/slipway/internal/region/s3"
	"github.com/slipway-k8s/slipway/internal/region/server"
	"github.com/slipway-k8s/slipway/internal/region/servicequotas"
	"github.com/slipway-k8s/slipway/internal/region/sns"
	"github.com/slipway-k8s/slipway/internal/region/ssm"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/sts"
	"github.com/slipway-k8s/slipway/internal/region/tagging"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config describes the region to build. Region, Account, the keys, Now, State, S3Dir, Faults, FunctionDir, RegistryDir
// and Endpoint are required.
type Config struct {
	Region      string           // name of the AWS region, such as us-east-1
	Account     string           // account ID, 12 digits
	AccessKeyID string           // access key of the account's root
	SecretKey   string           // secret of AccessKeyID
	Now         func() time.Time // the region's clock
	Log         *slog.Logger     // nil discards the log
	State       state.Backend    // where the services save their state
	S3Dir       string           // folder of the S3 buckets
	Faults      *fault.Engine    // faults to inject; an empty engine injects none
	FunctionDir string           // folder of the code of functions
	RegistryDir string           // folder of the images in the registry

	TransitionDelay time.Duration // how long a load balancer or an instance takes to become ready
	// Visibility is how long what is new is not seen; zero makes it visible at once.
	Visibility visibility.Delay
	Images     []ec2.Image // AMIs that EC2 offers
	// Unbootable returns why no machine can boot from an image, or ""; nil means that machines can.
	Unbootable       func(imageID string) string
	PublicParameters map[string]string // SSM parameters that AWS publishes, by name
	Quotas           ec2.Quotas        // limits of EC2; a zero field is a new account's
	IAMQuotas        iam.Quotas        // limits of IAM; a zero field is a new account's
	MaxLoadBalancers int               // limit of network load balancers; 0 is a new account's
	MaxStacks        int               // limit of stacks; 0 is a new account's
	NoDefaultVPC     bool              // the account's default VPC was deleted

	// TraceAuthorization is called for each request that an IAM policy decides; nil for none.
	TraceAuthorization func(authz.Request, authz.Decision)

	// Machines and Network run instances and packets. Without them the region only keeps records.
	Machines ec2.Machines
	Network  ec2.Network
	// PublicAddresses is the first address of the range of public addresses; zero for EC2's default.
	PublicAddresses netip.Addr
	// Loopback is the first loopback address of internet-facing load balancers; zero for the default.
	Loopback netip.Addr

	// Endpoint returns the URL of the region's API as processes of this computer reach it, for functions. It is called
	// when a function starts.
	Endpoint func() string

	SignalURL          string        // base URL of wait condition handles, as machines reach it
	PollInterval       time.Duration // how often CloudFormation polls a resource; default 100 ms
	DeleteRetryTimeout time.Duration // how long CloudFormation retries a deletion; default 20 s

	// Before runs before each call and may refuse it; see [server.Config].
	Before func(ctx context.Context, service, op string) error
	// KillCaller ends the process that sent a request, for faults; nil if that is impossible.
	KillCaller func(*http.Request) error
}

// Services are the running services of one region.
type Services struct {
	IAM            *iam.IAM                // identities and permissions; STS is a view of it
	KMS            *kms.Service            // encryption keys
	S3             *s3.Service             // buckets
	ECR            *ecr.Service            // images
	SSM            *ssm.Service            // parameters
	EC2            *ec2.Service            // instances and networks
	ELBv2          *elbv2.Service          // network load balancers
	Route53        *route53.Service        // hosted zones
	AutoScaling    *autoscaling.Service    // groups of instances
	Logs           *cloudwatchlogs.Service // log groups
	Lambda         *lambda.Service         // functions
	EventBridge    *eventbridge.Service    // rules for events
	SNS            *sns.Service            // topics
	CloudFormation *cloudformation.Service // stacks
	Server         *server.Server          // the HTTP front of all services

	cfg   Config
	model *wire.Model // of all services
}

// refusedMembers lists the members of AWS's shapes that no service of the region reads. They are refused.
//
//go:embed refused-members.txt
var refusedMembers string

// enumValues lists the values of the enums in AWS's shapes.
//
//go:embed enums.txt
var enumValues string

// New builds the services, loads their saved state and connects them. Call [Services.Run] to start their
// background work.
func New(cfg Config) (*Services, error) {
	model, err := wire.ParseModel(refusedMembers, enumValues)
	if err != nil {
		return nil, err
	}

	s := &Services{cfg: cfg, model: model}
	for _, build := range []func() error{
		s.buildIdentity,
		s.buildStorage,
		s.buildRegistry,
		s.buildCompute,
		s.buildLoadBalancing,
		s.buildFunctions,
		s.buildAutoScaling,
		s.buildCloudFormation,
		s.buildServer,
	} {
		if err := build(); err != nil {
			return nil, err
		}
	}

	s.SetVisibility(cfg.Visibility)

	return s, nil
}

// SetVisibility changes how long what is new is not seen. Everything that exists is visible then.
func (s *Services) SetVisibility(d visibility.Delay) {
	iam.SetVisibility(s.IAM, d)

	for _, service := range []interface{ SetVisibility(d visibility.Delay) }{
		s.EC2, s.ECR, s.ELBv2, s.EventBridge, s.KMS, s.Lambda, s.Route53, s.S3, s.SNS,
	} {
		service.SetVisibility(d)
	}
}

// Handler answers every request to the region: public objects of S3 and signals to wait conditions have no
// signature, all other requests go to [Services.Server].
func (s *Services) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Go's server invites the body when it is read, and an empty one never is. boto3 then waits for the
		// invitation before each later request on the connection, for ever.
		if r.ContentLength == 0 && strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
			w.WriteHeader(http.StatusContinue)
		}

		if h, ok := s.ECR.Handler(r); ok { // by its host: paths are those of any registry
			h.ServeHTTP(w, r)
			return
		}

		if h, ok := s.S3.PublicHandler(r); ok {
			h.ServeHTTP(w, r)
			return
		}

		if h, ok := s.CloudFormation.SignalHandler(r); ok {
			h.ServeHTTP(w, r)
			return
		}

		s.Server.ServeHTTP(w, r)
	})
}

// Run does the services' background work until ctx ends, and returns when all of it has ended.
func (s *Services) Run(ctx context.Context) {
	var wg sync.WaitGroup
	loops := []func(context.Context){
		s.EC2.Run,
		s.ELBv2.Run,
		s.AutoScaling.Run,
		s.CloudFormation.Run,
		s.EventBridge.Run,
		s.SNS.Run,
		s.Lambda.Run,
	}
	for _, run := range loops {
		wg.Go(func() { run(ctx) })
	}

	wg.Wait()
}

// SaveTo writes the state of the services to another backend, for a snapshot. The order matters while the
// region runs: CloudFormation comes first, so that its record may lack a resource that another service has
// (as after a crash), but never the other way round. Auto Scaling comes before EC2, because its instances are
// those of EC2. The parameters of SSM and the objects of S3 are not part of a snapshot.
func (s *Services) SaveTo(to state.Backend) error {
	for _, service := range []interface{ SaveTo(to state.Backend) error }{
		s.CloudFormation, s.IAM, s.KMS, s.ECR, s.Route53, s.EventBridge, s.SNS, s.Lambda, s.Logs, s.AutoScaling, s.ELBv2,
		s.EC2,
	} {
		if err := service.SaveTo(to); err != nil {
			return err
		}
	}

	return nil
}

// wireServices lists the services of the region that CloudFormation calls.
func (s *Services) wireServices() []wire.Service {
	return withModel(s.model, []wire.Service{
		s.IAM.Service(),
		sts.Service(s.IAM, iam.WebIdentities{IAM: s.IAM, Fetch: s.fetchPublicDocument}),
		s.KMS.Wire(),
		s.S3.Wire(),
		s.SSM.Wire(),
		s.ECR.Wire(),
		servicequotas.Service(servicequotas.Config{
			Region:  s.cfg.Region,
			Account: s.cfg.Account,
			Quotas: servicequotas.Quotas{
				EC2:           s.cfg.Quotas,
				IAM:           s.cfg.IAMQuotas,
				LoadBalancers: s.cfg.MaxLoadBalancers,
				Stacks:        s.cfg.MaxStacks,
			},
		}),
		s.EC2.Wire(),
		s.ELBv2.Wire(),
		s.AutoScaling.Wire(),
		s.Route53.Wire(),
		s.Logs.Wire(),
		s.Lambda.Wire(),
		s.EventBridge.Wire(),
		s.SNS.Wire(),
	})
}

// allServices lists every service of the region.
func (s *Services) allServices() []wire.Service {
	return append(
		s.wireServices(),
		withModel(s.model, []wire.Service{s.CloudFormation.Wire(), tagging.Service(s.tagSources()...)})...,
	)
}

// tagSources returns what tells the tags of resources. IAM and Route 53 are global services.
func (s *Services) tagSources() []tagging.Source {
	out := []tagging.Source{
		s.EC2.ResourceTags,
		s.ELBv2.ResourceTags,
		s.KMS.ResourceTags,
		s.S3.ResourceTags,
		s.CloudFormation.ResourceTags,
	}
	if s.cfg.Region == tagging.GlobalRegion {
		out = append(
			out,
			s.Route53.ResourceTags,
			func() map[string]map[string]string { return iam.ResourceTags(s.IAM) },
		)
	}

	return out
}

// withModel sets the model of services.
func withModel(m *wire.Model, list []wire.Service) []wire.Service {
	for i := range list {
		list[i].Model = m
	}

	return list
}

// buildIdentity builds IAM and KMS.
func (s *Services) buildIdentity() (err error) {
	s.IAM, err = iam.New(iam.Config{
		Account:     s.cfg.Account,
		AccessKeyID: s.cfg.AccessKeyID,
		SecretKey:   s.cfg.SecretKey,
		Quotas:      s.cfg.IAMQuotas,
		State:       s.cfg.State,
		Now:         s.cfg.Now,
		Trace:       s.cfg.TraceAuthorization,
	})
	if err != nil {
		return err
	}

	s.KMS, err = kms.New(kms.Config{
		Region:     s.cfg.Region,
		Account:    s.cfg.Account,
		State:      s.cfg.State,
		Now:        s.cfg.Now,
		Identities: s.IAM,

		MissingPrincipal: s.missingPrincipal,
	})

	return err
}

// missingPrincipal returns a user or role that a policy names and that does not exist.
func (s *Services) missingPrincipal(p authz.Policy) (arn string, ok bool) {
	return iam.MissingPrincipal(s.IAM, p)
}

// instanceProfiles adapts IAM to what EC2 asks about instance profiles.
type instanceProfiles struct{ iam *iam.IAM }

// InstanceProfile finds a profile by its name or ARN.
func (p instanceProfiles) InstanceProfile(nameOrARN string) (ec2.Profile, bool) {
	v, ok := p.iam.InstanceProfile(nameOrARN)

	return ec2.Profile(v), ok
}

// buildCompute builds EC2.
func (s *Services) buildCompute() (err error) {
	s.EC2, err = ec2.New(ec2.Config{
		Region:            s.cfg.Region,
		Account:           s.cfg.Account,
		Now:               s.cfg.Now,
		Rand:              rand.Reader,
		TransitionDelay:   s.cfg.TransitionDelay,
		ProvisioningDelay: s.cfg.Faults.ProvisioningDelay,
		LacksCapacity:     s.cfg.Faults.LacksCapacity,
		State:             s.cfg.State,
		Images:            s.cfg.Images,
		Unbootable:        s.cfg.Unbootable,
		Machines:          s.cfg.Machines,
		Network:           s.cfg.Network,
		PublicIPBase:      s.cfg.PublicAddresses,
		Profiles:          instanceProfiles{s.IAM},
		Quotas:            s.cfg.Quotas,
		DefaultVPC:        !s.cfg.NoDefaultVPC,
		Log:               s.cfg.Log,
	})
	if err != nil {
		return err
	}

	s.cfg.Faults.OnNotice(s.giveNotice)

	return nil
}

// giveNotice gives a spot instance the notice of a fault.
func (s *Services) giveNotice(r fault.Rule) error {
	if r.Effect == fault.EffectRebalance {
		return s.EC2.RecommendRebalance(r.Instance)
	}

	notice := time.Duration(r.Delay)
	if notice == 0 {
		notice = ec2.SpotNotice
	}

	return s.EC2.InterruptSpotInstance(r.Instance, notice)
}

// buildLoadBalancing builds load balancing and Route 53, and tells EC2 about both: they are part of the
// network.
func (s *Services) buildLoadBalancing() (err error) {
	s.ELBv2, err = elbv2.New(elbv2.Config{
		Region:            s.cfg.Region,
		Account:           s.cfg.Account,
		Now:               s.cfg.Now,
		Rand:              rand.Reader,
		TransitionDelay:   s.cfg.TransitionDelay,
		ProvisioningDelay: s.cfg.Faults.ProvisioningDelay,
		State:             s.cfg.State,
		Cloud:             s.EC2,
		HasVPC:            func(id string) bool { return ec2.HasVPC(s.EC2, id) },
		Loopback:          s.cfg.Loopback,
		MaxBalancers:      s.cfg.MaxLoadBalancers,
		Log:               s.cfg.Log,
	})
	if err != nil {
		return err
	}

	s.EC2.SetLoadBalancers(s.ELBv2.LoadBalancers)

	s.Route53, err = route53.New(route53.Config{
		Account:           s.cfg.Account,
		Region:            s.cfg.Region,
		Now:               s.cfg.Now,
		Rand:              rand.Reader,
		PropagationDelay:  s.cfg.TransitionDelay,
		State:             s.cfg.State,
		VPCExists:         s.EC2.HasVPC,
		AliasTargetExists: s.ELBv2.HasDNSName,
		Changed:           s.EC2.LoadBalancersChanged,
	})
	if err != nil {
		return err
	}

	s.EC2.SetHostedZones(s.Route53.ResolverZones)

	return nil
}

// buildAutoScaling builds Auto Scaling; EC2 tells it about changes of instances.
func (s *Services) buildAutoScaling() (err error) {
	s.AutoScaling, err = autoscaling.New(autoscaling.Config{
		Region:       s.cfg.Region,
		Account:      s.cfg.Account,
		Now:          s.cfg.Now,
		Rand:         rand.Reader,
		State:        s.cfg.State,
		EC2:          s.EC2,
		TargetGroups: s.ELBv2,
		Log:          s.cfg.Log,
		Emit: func(e autoscaling.Event) {
			s.EventBridge.Emit(eventbridge.Event{
				Source:     "aws.autoscaling",
				DetailType: e.DetailType,
				Resources:  e.Resources,
				Detail:     e.Detail,
			})
		},
		Publish: func(n autoscaling.Notification) error { return s.SNS.Publish(sns.Message(n)) },
	})
	if err != nil {
		return err
	}

	s.EC2.AddWatcher(s.AutoScaling.RequestReconcile)

	return nil
}

// buildCloudFormation builds CloudFormation over all the other services.
func (s *Services) buildCloudFormation() (err error) {
	s.CloudFormation, err = cloudformation.New(cloudformation.Config{
		Region:             s.cfg.Region,
		Account:            s.cfg.Account,
		Now:                s.cfg.Now,
		Rand:               rand.Reader,
		State:              s.cfg.State,
		Zones:              s.EC2.Zones(),
		Services:           s.wireServices(),
		Authorizer:         s.IAM,
		Roles:              s.IAM,
		SignalURL:          s.cfg.SignalURL,
		Endpoint:           s.cfg.Endpoint,
		PollInterval:       s.cfg.PollInterval,
		DeleteRetryTimeout: s.cfg.DeleteRetryTimeout,
		MaxStacks:          s.cfg.MaxStacks,
		Log:                s.cfg.Log,
		SystemTaggers: map[string]cloudformation.SystemTagger{
			"elasticloadbalancing": s.ELBv2.SetSystemTags,
			"events":               s.EventBridge.SetSystemTags,
			"iam":                  s.IAM.SetSystemTags,
			"kms":                  s.KMS.SetSystemTags,
			"lambda":               s.Lambda.SetSystemTags,
			"logs":                 s.Logs.SetSystemTags,
			"route53":              s.Route53.SetSystemTags,
			"sns":                  s.SNS.SetSystemTags,
		},
	})

	return err
}

// buildServer builds the HTTP front of all services.
func (s *Services) buildServer() (err error) {
	s.Server, err = server.New(server.Config{
		Region:          s.cfg.Region,
		Services:        s.allServices(),
		Keys:            s.IAM,
		Authorizer:      s.IAM,
		Now:             s.cfg.Now,
		Log:             s.cfg.Log,
		BeforeOperation: s.cfg.Before,
		Faults:          s.cfg.Faults,
		KillClient:      s.cfg.KillCaller,
	})

	return err
}
