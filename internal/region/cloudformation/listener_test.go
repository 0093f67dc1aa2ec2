// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"strings"
	"testing"
)

// TestListenerAttributesAreRefused: the region's load balancers have no attributes of listeners, so a template that sets
// some must fail. It was created without them, as if all was well.
func TestListenerAttributesAreRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	body := strings.Replace(network, "Outputs:\n", `  Lb: {Type: AWS::ElasticLoadBalancingV2::LoadBalancer, Properties: {Type: network, Scheme: internal, Subnets: [!Ref Subnet]}}
  Tg: {Type: AWS::ElasticLoadBalancingV2::TargetGroup, Properties: {Protocol: TCP, Port: 80, VpcId: !Ref Vpc}}
  Listener:
    Type: AWS::ElasticLoadBalancingV2::Listener
    Properties:
      LoadBalancerArn: !Ref Lb
      Port: 80
      Protocol: TCP
      DefaultActions: [{Type: forward, TargetGroupArn: !Ref Tg}]
      ListenerAttributes: [{Key: tcp.idle_timeout.seconds, Value: "400"}]
Outputs:
`, 1)
	l.want(l.create("net", body), "ROLLBACK_COMPLETE")
	l.told("net", "CREATE_FAILED Listener Encountered unsupported property ListenerAttributes")
}
