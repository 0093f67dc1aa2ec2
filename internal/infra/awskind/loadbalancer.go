// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// LoadBalancer is a Network Load Balancer.
type LoadBalancer struct {
	Name string `aws:"Name,immutable"`
	Type string `aws:"Type,immutable" tf:"load_balancer_type"` // network
	// internet-facing or internal
	Scheme         string                     `aws:"Scheme,immutable" tf:"internal,is=internal"`
	Subnets        []graph.Ref[Subnet]        `aws:"Subnets,set"` // one for each zone
	SecurityGroups []graph.Ref[SecurityGroup] `aws:"SecurityGroups,set"`
	// by AWS's key, such as deletion_protection.enabled
	Attributes map[string]string `aws:"LoadBalancerAttributes" tf:"-,options"`
	Tags       Tags              `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (LoadBalancer) Kind() graph.Kind {
	return graph.Kind{
		Name:                 "load-balancer",
		Terraform:            "aws_lb",
		CloudFormation:       "AWS::ElasticLoadBalancingV2::LoadBalancer",
		ImplicitDependencies: []string{"gateway-attachment"},
		Attributes:           map[string]string{"DNSName": "dns_name", "CanonicalHostedZoneID": "zone_id"},
		Outputs:              []string{"DNSName"},
		TerraformOptions: map[string]string{
			"load_balancing.cross_zone.enabled": "enable_cross_zone_load_balancing",
			"deletion_protection.enabled":       "enable_deletion_protection",
		},
		Lifecycle: graph.Lifecycle{
			Replacement:   graph.ForbidReplacement,
			ForbiddenHint: "its name and address are in every kubeconfig; create a new cluster to change it",
		},
	}
}

// TargetGroup is a set of targets of a load balancer, and its health check.
type TargetGroup struct {
	Name                string         `aws:"Name,immutable"`
	VPC                 graph.Ref[VPC] `aws:"VpcId,immutable"`
	Protocol            string         `aws:"Protocol,immutable"` // TCP
	Port                int            `aws:"Port,immutable"`
	TargetType          string         `aws:"TargetType,immutable"`                           // instance
	HealthCheckProtocol string         `aws:"HealthCheckProtocol" tf:"health_check.protocol"` // TCP or HTTPS
	// of HTTPS, such as /readyz
	HealthCheckPath string `aws:"HealthCheckPath" tf:"health_check.path"`
	HealthCheckPort string `aws:"HealthCheckPort" tf:"health_check.port"`
	// seconds
	HealthCheckInterval int `aws:"HealthCheckIntervalSeconds" tf:"health_check.interval"`
	// seconds
	HealthCheckTimeout int `aws:"HealthCheckTimeoutSeconds" tf:"health_check.timeout"`
	// successes in a row
	HealthyThreshold int `aws:"HealthyThresholdCount" tf:"health_check.healthy_threshold"`
	// failures in a row
	UnhealthyThreshold int               `aws:"UnhealthyThresholdCount" tf:"health_check.unhealthy_threshold"`
	Attributes         map[string]string `aws:"TargetGroupAttributes" tf:"-,options"`
	Tags               Tags              `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (TargetGroup) Kind() graph.Kind {
	return graph.Kind{
		Name:           "target-group",
		Terraform:      "aws_lb_target_group",
		CloudFormation: "AWS::ElasticLoadBalancingV2::TargetGroup",
		TerraformOptions: map[string]string{
			"deregistration_delay.timeout_seconds":                "deregistration_delay",
			"deregistration_delay.connection_termination.enabled": "connection_termination",
			"preserve_client_ip.enabled":                          "preserve_client_ip",
		},
		Lifecycle: graph.Lifecycle{Replacement: graph.ForbidReplacement, ForbiddenHint: renameHint},
	}
}

// Listener forwards a port of a load balancer to a target group. It is found through its load balancer.
type Listener struct {
	LoadBalancer   graph.Ref[LoadBalancer] `aws:"LoadBalancerArn,immutable"`
	Port           int                     `aws:"Port"`     // of the load balancer
	Protocol       string                  `aws:"Protocol"` // TCP
	DefaultActions []ListenerAction        `aws:"DefaultActions" tf:"default_action"`
}

// ListenerAction is what a listener does with a connection.
type ListenerAction struct {
	Type        string                 `aws:"Type"`           // forward
	TargetGroup graph.Ref[TargetGroup] `aws:"TargetGroupArn"` // the target of forward
}

// Kind implements [graph.Resource].
func (Listener) Kind() graph.Kind {
	return graph.Kind{
		Name:           "listener",
		Terraform:      "aws_lb_listener",
		CloudFormation: "AWS::ElasticLoadBalancingV2::Listener",
		KeyProperties:  []string{"LoadBalancerArn", "Port"},
		DeletedWith:    graph.Parent{Kind: "load-balancer", Blocks: []string{"target-group"}},
	}
}
