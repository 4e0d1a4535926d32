/* sources sha256:bea64d8acc2e5fd7fd255bed31c45407bfac71b0f72dfe9c5937786e49b37afd */

// node_modules/preact/dist/preact.mjs
var n;
var t;
var r;
var u;
var i;
var f;
var o;
var e;
var l;
var c;
var a;
var s;
var h = /* @__PURE__ */ Symbol.for("pv");
var p = {};
var y = [];
var v = /^m(i|n|o|s|text|space)$/;
var w = Array.isArray;
var d = y.slice;
var _ = Object.assign;
function g(n3) {
  n3 && n3.parentNode && n3.remove();
}
function k(n3, t4, r4) {
  var u4, i4, f5, o5 = {}, e4 = arguments.length;
  for (f5 in t4) "key" == f5 ? u4 = t4[f5] : "ref" == f5 && "function" != typeof n3 ? i4 = t4[f5] : o5[f5] = t4[f5];
  return e4 > 2 && (o5.children = e4 > 3 ? d.call(arguments, 2) : r4), m(n3, o5, u4, i4, null);
}
function m(r4, u4, i4, f5, o5) {
  var e4 = { type: r4, props: u4, key: i4, ref: f5, __k: null, __: null, __b: 0, __e: null, __c: null, constructor: h, __v: o5 || ++t, __i: -1, __u: 0 };
  return !o5 && n.vnode && n.vnode(e4), e4;
}
function $(n3) {
  return n3.children;
}
function x(n3, t4) {
  this.props = n3, this.context = t4, this.__g = 0;
}
function S(n3, t4) {
  if (null == t4) return n3.__ && S(n3.__, n3.__i + 1);
  for (var r4; t4 < n3.__k.length; t4++) if ((r4 = n3.__k[t4]) && r4.__e) return r4.__e;
  return "function" != typeof n3.type || n3.props.__P ? null : S(n3);
}
function C(t4) {
  var r4, u4 = t4.__v, i4 = u4.__e, f5 = [], o5 = [], e4 = t4.__P;
  e4 && ((r4 = _({ constructor: h }, u4)).__v = u4.__v + 1, n.vnode && n.vnode(r4), z(e4, r4, u4, t4.__n, e4.namespaceURI, 32 & u4.__u ? [i4] : null, f5, i4 || S(u4), 32 & u4.__u, o5), r4.__v = u4.__v, r4.__.__k[r4.__i] = r4, E(f5, r4, o5), u4.__ = u4.__e = null, r4.__e != i4 && j(r4));
}
function j(n3) {
  if ((n3 = n3.__) && n3.__c && !n3.props.__P) return n3.__e = null, n3.__k.some(function(t4) {
    return t4 && (n3.__e = t4.__e);
  }), j(n3);
}
function L(t4) {
  (8 & t4.__g || (t4.__g |= 8, u.push(t4), f++)) && i == n.debounceRendering || ((i = n.debounceRendering) || queueMicrotask)(H);
}
function H() {
  try {
    for (var n3, t4 = 1; u.length; ) u.length > t4 && u.sort(o), n3 = u.shift(), t4 = u.length, 8 & n3.__g && C(n3);
  } finally {
    (f = u.length) && (i || queueMicrotask)(H);
  }
}
function I(n3, t4, r4, u4, i4, f5, o5, e4, l4, c4, a5) {
  var s4, h5, v4, w5, d4, _4, g5 = u4.__k || y, k4 = t4.length;
  for (l4 = q(r4, t4, g5, l4, k4), s4 = 0; s4 < k4; s4++) null != (v4 = r4.__k[s4]) && (h5 = ~v4.__i && g5[v4.__i] || p, v4.__i = s4, _4 = z(n3, v4, h5, i4, f5, o5, e4, l4, c4, a5), w5 = v4.__e, (h5.ref != v4.ref || 8 & h5.__u) && (h5.ref && G(h5.ref, null, v4, h5), v4.ref && a5.push(v4.ref, v4.__c || w5, v4)), d4 = d4 || w5, 4 & v4.__u ? (l4 = A(v4, l4, n3, !h5.__v), h5.__e && (h5.__e = null)) : "function" == typeof v4.type && void 0 !== _4 ? l4 = _4 : w5 && (l4 = w5.nextSibling), v4.__u &= -21);
  return r4.__e = d4, l4;
}
function q(n3, t4, r4, u4, i4) {
  var f5, o5, e4, l4, c4, a5, s4, p5, y5, v4 = r4.length, d4 = v4, _4 = 0, g5 = 0, k4 = n3.__k = Array(i4);
  for (f5 = 0; f5 < i4; f5++) null != (o5 = t4[f5]) && "boolean" != typeof o5 && "function" != typeof o5 ? ("object" != typeof o5 || o5.constructor === String ? o5 = k4[f5] = m(null, o5) : w(o5) ? o5 = k4[f5] = m($, { children: o5 }) : o5.constructor === h && o5.__b ? o5 = k4[f5] = m(o5.type, o5.props, o5.key, o5.ref, o5.__v) : k4[f5] = o5, l4 = f5 + _4, o5.__ = n3, o5.__b = n3.__b + 1, e4 = null, ~(c4 = o5.__i = P(o5, r4, l4, d4)) && (d4--, (e4 = r4[c4]) && (e4.__u |= 2)), e4 && e4.__v ? (o5.__u |= 16, c4 == l4 - 1 ? _4-- : c4 == l4 + 1 ? _4++ : c4 != l4 && (c4 > l4 ? _4-- : _4++, g5 = 1)) : (~c4 || (i4 > v4 ? _4-- : i4 < v4 && _4++), "function" != typeof o5.type && (o5.__u |= 4))) : k4[f5] = null;
  if (g5) {
    for (a5 = [], s4 = [], f5 = 0; f5 < i4; f5++) if ((o5 = k4[f5]) && 16 & o5.__u) {
      for (_4 = 0, p5 = a5.length; _4 < p5; ) a5[y5 = _4 + p5 >> 1] < o5.__i ? _4 = y5 + 1 : p5 = y5;
      a5[_4] = o5.__i, s4[f5] = _4 + 1;
    }
    for (_4 = a5.length; f5--; ) s4[f5] && (s4[f5] == _4 ? _4-- : k4[f5].__u |= 4);
  }
  if (d4) for (f5 = 0; f5 < v4; f5++) !(e4 = r4[f5]) || 2 & e4.__u || (e4.__e == u4 && (u4 = S(e4)), J(e4, e4));
  return u4;
}
function A(n3, t4, r4, u4) {
  var i4, f5, o5, e4;
  if ("function" == typeof n3.type) {
    if (n3.props.__P) return t4;
    if (i4 = n3.__k) for (f5 = 0; f5 < i4.length; f5++) i4[f5] && (i4[f5].__ = n3, t4 = A(i4[f5], t4, r4, false));
    return t4;
  }
  for (t4 && !t4.parentNode && (t4 = S(n3)) && !t4.parentNode && (t4 = null), o5 = n3.__e, e4 = t4; e4 && 8 == e4.nodeType; ) e4 = e4.nextSibling;
  for (o5 != e4 && (!u4 && r4.moveBefore && o5.parentNode ? r4.moveBefore(o5, t4) : r4.insertBefore(o5, t4 || null)), t4 = o5; (t4 = t4 && t4.nextSibling) && 8 == t4.nodeType && !t4.data.startsWith("$s"); ) ;
  return t4;
}
function P(n3, t4, r4, u4) {
  var i4, f5 = n3.key, o5 = n3.type, e4 = t4[r4], l4 = e4 && !(2 & e4.__u);
  if (null === e4 && null == f5 || l4 && f5 == e4.key && o5 == e4.type) return r4;
  if (u4 > (l4 ? 1 : 0)) {
    for (i4 = r4 - 1; i4 >= 0; i4--) if ((e4 = t4[i4]) && !(2 & e4.__u) && f5 == e4.key && o5 == e4.type) return i4;
    for (i4 = r4 + 1; i4 < t4.length; i4++) if ((e4 = t4[i4]) && !(2 & e4.__u) && f5 == e4.key && o5 == e4.type) return i4;
  }
  return -1;
}
function T(n3, t4, r4) {
  null == r4 && (r4 = ""), "-" == t4[0] ? n3.setProperty(t4, r4) : n3[t4] = r4;
}
function N(n3, t4, r4, u4, i4) {
  var f5, o5;
  if ("style" == t4) if ("string" == typeof r4) n3.style.cssText = r4;
  else {
    if ("string" == typeof u4 && (n3.style.cssText = u4 = ""), u4) for (t4 in u4) r4 && t4 in r4 || T(n3.style, t4);
    if (r4) for (t4 in r4) u4 && r4[t4] == u4[t4] || T(n3.style, t4, r4[t4]);
  }
  else if ("o" == t4[0] && "n" == t4[1]) "function" != typeof r4 && (r4 = null), "function" != typeof u4 && (u4 = null), (n3.__e || (n3.__e = {}))[t4] = r4, r4 && u4 || (o5 = a[t4] || (a[t4] = V(t4)), (n3.__a || (n3.__a = {}))[t4] = c, f5 = t4 != (t4 = t4.replace(l, "$1")), (t4 = t4.slice(2))[0] < "a" && (t4 = t4.toLowerCase()), r4 ? n3.addEventListener(t4, o5, f5) : n3.removeEventListener(t4, o5, f5));
  else {
    if ("http://www.w3.org/2000/svg" == i4) t4 = t4.replace(/xlink(H|:h)/, "h").replace(/sName$/, "s");
    else if ("width" != t4 && "height" != t4 && "href" != t4 && "list" != t4 && "form" != t4 && "tabIndex" != t4 && "download" != t4 && "rowSpan" != t4 && "colSpan" != t4 && "role" != t4 && "popover" != t4 && t4 in n3) try {
      return void (n3[t4] = null == r4 ? "" : r4);
    } catch (n4) {
    }
    if ("function" == typeof r4) return;
    null == r4 || false === r4 && "-" != t4[4] ? n3.removeAttribute(t4) : n3.setAttribute(t4, "popover" == t4 && 1 == r4 ? "" : r4);
  }
}
function V(t4) {
  return function(r4) {
    var u4 = this.__e;
    if (u4) {
      if (u4 = u4[t4], null == r4[e]) r4[e] = c++;
      else if (r4[e] < this.__a[t4]) return;
      return u4(n.event ? n.event(r4) : r4);
    }
  };
}
function z(t4, r4, u4, i4, f5, o5, e4, l4, c4, a5) {
  var s4, p5, v4, d4, k4, b3, m5, M2, C3, j4, L2, H2, q3, A4, O2, P2, T5, N2, V2 = r4.type;
  if (r4.constructor !== h) return null;
  128 & u4.__u && (c4 = 32 & u4.__u, s4 = u4.__c.__z) && (r4.__u |= c4, p5 = o5 = [], 8 == s4.nodeType ? l4 = B(s4, o5) : o5.push(s4), l4 = o5[0] || l4), (s4 = n.__b) && s4(r4);
  n: if ("function" == typeof V2) {
    v4 = e4.length;
    try {
      if (M2 = r4.props, C3 = (s4 = V2.prototype) && s4.render, j4 = (s4 = V2.contextType) && i4[s4.__c], L2 = s4 ? j4 ? j4.props.value : s4.__ : i4, (d4 = u4.__c) ? (r4.__c = d4, 2 & d4.__g && (d4.__g |= 1)) : (C3 ? r4.__c = d4 = new V2(M2, L2) : (r4.__c = d4 = new x(M2, L2), d4.constructor = V2, d4.render = K), j4 && j4.sub(d4), d4.state || (d4.state = {}), d4.__n = i4, d4.__g |= 8, d4.__h = [], d4.__k = []), C3 && (d4.__s || (d4.__s = d4.state), V2.getDerivedStateFromProps && (d4.__s == d4.state && (d4.__s = _({}, d4.__s)), _(d4.__s, V2.getDerivedStateFromProps(M2, d4.__s)))), k4 = d4.props, b3 = d4.state, d4.__v = r4, u4.__c) {
        if (M2 !== k4 && C3 && !V2.getDerivedStateFromProps && d4.componentWillReceiveProps && d4.componentWillReceiveProps(M2, L2), r4.__v == u4.__v && !(8 & d4.__g) || !(4 & d4.__g) && d4.shouldComponentUpdate && false === d4.shouldComponentUpdate(M2, d4.__s, L2)) {
          r4.__v != u4.__v && (d4.props = M2, d4.state = d4.__s, d4.__g &= -9), r4.__e = u4.__e, r4.__k = u4.__k, r4.__k.some(function(n3) {
            n3 && (n3.__ = r4);
          }), y.push.apply(d4.__h, d4.__k), d4.__k = [], d4.__h.length && e4.push(d4), l4 = S(u4);
          break n;
        }
        d4.componentWillUpdate && d4.componentWillUpdate(M2, d4.__s, L2), C3 && d4.componentDidUpdate && d4.__h.push(function() {
          d4.componentDidUpdate(k4, b3, m5);
        });
      } else C3 && !V2.getDerivedStateFromProps && d4.componentWillMount && d4.componentWillMount(), C3 && d4.componentDidMount && d4.__h.push(d4.componentDidMount);
      d4.context = L2, d4.props = M2, d4.__P = t4, d4.__g &= -5, H2 = n.__r, q3 = C3 ? 25 : 0;
      do {
        d4.__g &= -9, H2 && H2(r4), s4 = d4.render(d4.props, d4.state = d4.__s, d4.context);
      } while (8 & d4.__g && ++q3 < 25);
      C3 && (y.push.apply(d4.__h, d4.__k), d4.__k = []), d4.state = d4.__s, d4.getChildContext && (i4 = _({}, i4, d4.getChildContext())), C3 && u4.__c && d4.getSnapshotBeforeUpdate && (m5 = d4.getSnapshotBeforeUpdate(k4, b3)), A4 = s4 && s4.type === $ && null == s4.key ? s4.props.children : s4, M2.__P && (s4 = l4, f5 = (t4 = M2.__P).namespaceURI, c4 = o5 = null, u4.props && u4.props.__P != t4 && (u4.__k.some(function(n3) {
        n3 && J(n3, n3);
      }), u4.__k = null), l4 = u4.__k ? S(u4, 0) : null), l4 = I(t4, w(A4) ? A4 : [A4], r4, u4, i4, f5, o5, e4, l4, c4, a5), M2.__P && (r4.__e = null, l4 = s4), r4.__u &= -161, p5 && p5.some(g), d4.__h.length && e4.push(d4), 1 & d4.__g && (d4.__g &= -4);
    } catch (t5) {
      if (e4.length = v4, r4.__v = null, c4 || o5) if (t5 && t5.then) {
        if (r4.__u |= 128 | c4, o5) {
          for (~(T5 = o5.indexOf(l4 || void 0)) || (T5 = o5.length); (N2 = o5[T5 - 1]) && 8 == N2.nodeType; ) T5--;
          for (; T5 < o5.length; T5++) if (N2 = o5[T5]) if (o5[T5] = null, O2) {
            if (N2 == P2) break;
          } else {
            if (8 != N2.nodeType) break;
            N2.data.startsWith("$s") && (P2 = B(O2 = N2));
          }
        }
        if (!O2) {
          for (; l4 && 8 == l4.nodeType && l4.nextSibling; ) l4 = l4.nextSibling;
          O2 = l4;
        }
        (s4 = B(O2 = r4.__c.__z || (r4.__c.__z = O2))) ? (r4.__e = O2, l4 = s4) : r4.__e = l4, l4 = l4 && l4.nextSibling;
      } else o5 && o5.some(g);
      else r4.__e = u4.__e;
      r4.__k || (r4.__k = u4.__k || []), t5 && t5.then || D(r4), n.__e(t5, r4, u4);
    }
  } else l4 = r4.__e = F(u4.__e, r4, u4, i4, f5, o5, e4, c4, a5, t4);
  return (s4 = n.diffed) && s4(r4), l4;
}
function B(n3, t4) {
  if (n3 && 8 == n3.nodeType && n3.data.startsWith("$s")) for (var r4 = 1; n3 = n3.nextSibling; ) {
    if (8 == n3.nodeType) {
      if (n3.data.startsWith("$s")) r4++;
      else if (n3.data.startsWith("/$s") && !--r4) return n3;
    }
    t4 && t4.push(n3);
  }
}
function D(n3) {
  n3 && (n3.__c && (n3.__c.__g |= 4), n3.__k && n3.__k.some(D));
}
function E(t4, r4, u4) {
  for (var i4 = 0; i4 < u4.length; ) G(u4[i4++], u4[i4++], u4[i4++]);
  n.__c && n.__c(r4, t4), t4.some(function(r5) {
    try {
      t4 = r5.__h, r5.__h = [], t4.some(function(n3) {
        n3.call(r5);
      });
    } catch (t5) {
      n.__e(t5, r5.__v);
    }
  });
}
function F(t4, r4, u4, i4, f5, o5, e4, l4, c4, a5) {
  var s4, h5, y5, _4, k4, b3, m5, M2, $2 = u4.props || p, x4 = r4.props, C3 = r4.type;
  if ("svg" == C3 ? f5 = "http://www.w3.org/2000/svg" : "math" == C3 ? f5 = "http://www.w3.org/1998/Math/MathML" : f5 || (f5 = "http://www.w3.org/1999/xhtml"), o5) {
    for (s4 = 0; s4 < o5.length; s4++) if ((k4 = o5[s4]) && (C3 ? k4.localName == C3 : 3 == k4.nodeType)) {
      t4 = k4, o5[s4] = null;
      break;
    }
  }
  if (!t4) {
    if (M2 = a5.ownerDocument || document, !C3) return M2.createTextNode(x4);
    t4 = M2.createElementNS(f5, C3, x4.is ? x4 : a5), l4 && (n.__m && n.__m(r4, o5), l4 = false), o5 = null;
  }
  if (C3) {
    if (a5 = "template" == C3 && t4.content || t4, o5 = "textarea" == C3 && null != x4.defaultValue ? null : o5 && d.call(a5.childNodes), !l4 && o5) for ($2 = {}, s4 = 0; s4 < t4.attributes.length; s4++) $2[(k4 = t4.attributes[s4]).name] = k4.value;
    for (s4 in $2) k4 = $2[s4], "dangerouslySetInnerHTML" == s4 ? y5 = k4 : "children" == s4 || s4 in x4 || "value" == s4 && "defaultValue" in x4 || "checked" == s4 && "defaultChecked" in x4 || N(t4, s4, null, k4, f5);
    for (s4 in x4) k4 = x4[s4], "children" == s4 ? _4 = k4 : "dangerouslySetInnerHTML" == s4 ? h5 = k4 : "value" == s4 ? b3 = k4 : "checked" == s4 ? m5 = k4 : l4 && "function" != typeof k4 || $2[s4] === k4 || N(t4, s4, k4, $2[s4], f5);
    h5 ? (l4 || y5 && (h5.__html == y5.__html || h5.__html == t4.innerHTML) || (t4.innerHTML = h5.__html), r4.__k = []) : (y5 && (t4.textContent = ""), ("foreignObject" == C3 || "http://www.w3.org/1998/Math/MathML" == f5 && v.test(C3)) && (f5 = "http://www.w3.org/1999/xhtml"), I(a5, w(_4) ? _4 : [_4], r4, u4, i4, f5, o5, e4, o5 ? o5[0] : u4.__k && S(u4, 0), l4, c4), o5 && o5.some(g)), l4 && "textarea" != C3 || (s4 = "value", "progress" == C3 && null == b3 ? t4.removeAttribute(s4) : null == b3 || b3 === t4[s4] && ("progress" != C3 || b3) || N(t4, s4, b3, $2[s4], f5), s4 = "checked", null != m5 && m5 != t4[s4] && N(t4, s4, m5, $2[s4], f5));
  } else $2 === x4 || l4 && t4.data == x4 || (t4.data = x4);
  return t4;
}
function G(t4, r4, u4, i4) {
  try {
    "function" == typeof t4 ? r4 ? r4.__x = t4(r4) || 1 : i4 && (i4 = i4.__c || i4.__e) && (r4 = i4.__x) && (i4.__x = null, "function" == typeof r4 ? r4() : t4(null)) : t4.current = r4;
  } catch (t5) {
    n.__e(t5, u4);
  }
}
function J(t4, r4, u4) {
  var i4, f5, o5, e4;
  if (n.unmount && n.unmount(t4), !(i4 = t4.ref) || i4.current && i4.current != t4.__e || G(i4, null, r4, t4), i4 = t4.__c) {
    if (i4.componentWillUnmount) try {
      i4.componentWillUnmount();
    } catch (t5) {
      n.__e(t5, r4);
    }
    i4.__P = i4.__n = null;
  }
  if (i4 = t4.__k) for (e4 = 0; e4 < i4.length; e4++) i4[e4] && J(i4[e4], r4, "function" != typeof t4.type || u4 && !t4.props.__P);
  !u4 && (i4 = t4.__c) && (i4 = i4.__z) && (f5 = B(i4, o5 = [])) && (i4 == t4.__e && o5.some(g), g(f5), g(i4)), u4 || g(t4.__e), t4.__e = t4.__c = t4.__ = null;
}
function K(n3, t4, r4) {
  return this.constructor(n3, r4);
}
function Q(t4, r4) {
  var u4, i4, f5, o5;
  n.__ && n.__(t4, r4), 9 == r4.nodeType && (r4 = r4.documentElement), i4 = (u4 = t4 && 32 & t4.__u) ? null : r4.__k, r4.__k = m($, { children: [t4] }), f5 = [], o5 = [], z(r4, r4.__k, i4 || p, p, r4.namespaceURI, i4 ? null : r4.firstChild ? d.call(r4.childNodes) : null, f5, i4 ? i4.__e : r4.firstChild, u4, o5), E(f5, r4.__k, o5), r4.__k.props.children = null;
}
function U(n3) {
  function t4(n4) {
    var r4, u4;
    return this.getChildContext || (r4 = /* @__PURE__ */ new Set(), (u4 = {})[t4.__c] = this, this.getChildContext = function() {
      return u4;
    }, this.shouldComponentUpdate = function(n5) {
      this.props.value != n5.value && r4.forEach(function(n6) {
        n6.__g |= 4, L(n6);
      });
    }, this.sub = function(n5) {
      r4.add(n5);
      var t5 = n5.componentWillUnmount;
      n5.componentWillUnmount = function() {
        r4.delete(n5), t5 && t5.call(n5);
      };
    }), n4.children;
  }
  return t4.__c = "__cC" + s++, t4.__ = n3, t4.Provider = (t4.Consumer = function(n4, t5) {
    return n4.children(t5);
  }).contextType = t4, t4;
}
n = { __e: function(n3, t4, r4, u4) {
  for (var i4, o5, e4; t4 = t4.__; ) if ((i4 = t4.__c) && !(1 & i4.__g)) {
    i4.__g |= 4;
    try {
      if ((e4 = (o5 = i4.constructor) && o5.getDerivedStateFromError) && i4.setState(o5.getDerivedStateFromError(n3)), i4.componentDidCatch && (i4.componentDidCatch(n3, u4 || {}), e4 = 1), e4 && 8 & i4.__g) return void (i4.__g |= 2);
    } catch (t5) {
      n3 = t5;
    }
  }
  throw f = 0, n3;
} }, t = 0, r = function(n3) {
  return null != n3 && n3.constructor === h;
}, x.prototype.setState = function(n3, t4) {
  var r4 = this.__s;
  r4 && r4 != this.state || (r4 = this.__s = _({}, this.state)), "function" == typeof n3 && (n3 = n3(_({}, r4), this.props)), n3 && (_(r4, n3), this.__v && (t4 && this.__k.push(t4), L(this)));
}, x.prototype.forceUpdate = function(n3) {
  this.__v && (this.__g |= 4, n3 && this.__h.push(n3), L(this));
}, x.prototype.render = $, u = [], f = 0, o = function(n3, t4) {
  return n3.__v.__b - t4.__v.__b;
}, e = /* @__PURE__ */ Symbol(), l = /(PointerCapture)$|Capture$/i, c = 0, a = {}, s = 0;

// ../client/js/src/arrays.ts
var Tensor = class {
  constructor(data, shape) {
    this.data = data;
    this.shape = shape;
    if (data.length !== product(shape)) {
      throw new RangeError(`${data.length} numbers do not have the shape (${shape.join(", ")})`);
    }
  }
  data;
  shape;
  /** The number at an index for each axis. Throws a RangeError for any other place. */
  at(...index) {
    if (index.length !== this.shape.length) {
      throw new RangeError(`at(${index.join(", ")}) needs ${this.shape.length} indices, one for each axis`);
    }
    return this.row(...index)[0];
  }
  /**
   * The numbers at an index for each of the first axes, as a view that shares memory: with all but one, a row.
   * Throws a RangeError for a place that does not exist.
   */
  row(...index) {
    const rest = this.shape.slice(index.length);
    let start = 0;
    index.forEach((i4, axis) => {
      const length2 = this.shape[axis] ?? 0;
      if (!Number.isInteger(i4) || i4 < 0 || i4 >= length2) {
        throw new RangeError(`index ${i4} of axis ${axis} is not below ${length2}`);
      }
      start = start * length2 + i4;
    });
    const size2 = product(rest);
    return this.data.subarray(start * size2, (start + 1) * size2);
  }
};
function floats(value, scale, shape) {
  if (value === void 0 || value === null) return null;
  if (!(value instanceof Tensor)) {
    const [data2, found] = flat(value);
    return new Tensor(Float32Array.from(data2, numeric), shape ?? found);
  }
  const { data } = value;
  return new Tensor(data instanceof Float32Array ? data : scaled(data, scale), shape ?? value.shape);
}
function integers(value, rows) {
  if (value === void 0 || value === null) return null;
  const data = value instanceof Tensor ? value.data : Int32Array.from(flat(value)[0]);
  return new Tensor(data, columns(rows, data.length));
}
function columns(rows, size2) {
  return [...rows, size2 / Math.max(1, product(rows))];
}
function flat(value) {
  if (!Array.isArray(value)) throw new TypeError(`${JSON.stringify(value)} is not a list of numbers`);
  const shape = [];
  for (let level = value; Array.isArray(level); level = level[0]) shape.push(level.length);
  return [value.flat(shape.length - 1), shape];
}
function fromFloat16(bits) {
  if (bits.length < HALVES) return Float32Array.from(bits, fromHalf);
  halves ??= Float32Array.from({ length: HALVES }, (_4, half) => fromHalf(half));
  const numbers2 = new Float32Array(bits.length);
  for (let i4 = 0; i4 < bits.length; i4++) numbers2[i4] = halves[bits[i4]];
  return numbers2;
}
var HALVES = 65536;
var halves;
function fromHalf(half) {
  const sign = half & 32768 ? -1 : 1;
  const exponent = half >> 10 & 31;
  const fraction = half & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}
function product(shape) {
  return shape.reduce((total, length2) => total * length2, 1);
}
function numeric(value) {
  return typeof value === "number" ? value : NaN;
}
function scaled(data, scale) {
  const factor = data instanceof Uint8Array ? Math.fround(scale) : 1;
  return Float32Array.from(data, (number) => number * factor);
}

// ../client/js/src/answers.ts
var AXES = ["layer", "head", "query", "key"];
var LABELS = { layer: "layers", head: "heads", query: "queries", key: "keys" };
var SUMMARY = "summary.";
var Answer = class {
  constructor(model, items, usage, maxError, requestIds, method) {
    this.model = model;
    this.items = items;
    this.usage = usage;
    this.maxError = maxError;
    this.requestIds = requestIds;
    this.method = method;
  }
  model;
  items;
  usage;
  maxError;
  requestIds;
  method;
  get length() {
    return this.items.length;
  }
  [Symbol.iterator]() {
    return this.items[Symbol.iterator]();
  }
  /** The item of an input; negative numbers count from the end. */
  at(index) {
    return this.items.at(index);
  }
  /** All sentence vectors, (texts, dimensions). Throws an Error if there are none. */
  get embeddings() {
    const vectors2 = this.items.map((item) => item.embedding);
    const [first] = vectors2;
    if (!first || !vectors2.every((vector) => vector)) {
      throw new Error('The response has no sentence vectors: use outputs: ["sentence"].');
    }
    const all = new first.constructor(vectors2.length * first.length);
    vectors2.forEach((vector, i4) => all.set(vector, i4 * first.length));
    return new Tensor(all, [vectors2.length, first.length]);
  }
};
function encoded(item, reading) {
  return {
    ...tokens(item, reading),
    chunks: chunks(item, reading),
    sparse: sparse(item),
    token_rows: item.token_rows ?? null
  };
}
function attentionMaps(item, reading) {
  const { axes, scale } = reading;
  const shape = axes.map((axis) => length(item, LABELS[axis]));
  const rows = shape.slice(0, -1);
  const weights = floats(item.top_weights, scale, item.top_weights && columns(rows, size(item.top_weights)));
  return {
    ...tokens(item, reading),
    axes,
    layers: item.layers ?? null,
    heads: item.heads ?? null,
    queries: item.queries ?? null,
    keys: item.keys ?? null,
    attention: floats(item.attention, scale, shape),
    top_keys: integers(item.top_keys, rows),
    top_weights: weights,
    residual: floats(item.residual, scale, rows),
    thumbnails: thumbnails(item, scale, shape),
    summary: summary(item),
    words: item.words ?? null,
    word_offsets: item.word_offsets ?? null
  };
}
function thumbnails(item, scale, shape) {
  const empty = shape.at(-1) === 0 ? shape : void 0;
  return floats(item.thumbnails, scale, empty);
}
function tokens(item, { scale, precision }) {
  const count = length(item, "tokens");
  for (const name of ["token_ids", "offsets", "word_ids", "segment_ids", "special"]) {
    if (length(item, name) !== count) throw new Error(`${name} has not one value for each token`);
  }
  return {
    index: item.index,
    tokens: item.tokens,
    token_ids: item.token_ids,
    offsets: item.offsets,
    word_ids: item.word_ids,
    segment_ids: item.segment_ids,
    special: item.special,
    truncated: item.truncated,
    original_length: item.original_length,
    embedding: vectors(item.embedding, precision)?.data ?? null,
    token_embeddings: floats(item.token_embeddings, scale)
  };
}
function chunks(item, { precision }) {
  if (!item.chunks) return null;
  const { offsets, token_spans } = item.chunks;
  const embeddings = vectors(item["chunks.embeddings"] ?? item.chunks.embeddings, precision);
  if (embeddings?.shape[0] !== offsets.length) throw new Error("chunks has not one vector for each");
  return { embeddings, offsets, token_spans };
}
function sparse(item) {
  if (!item.sparse) return null;
  const ids = item.sparse_ids instanceof Tensor ? Array.from(item.sparse_ids.data) : item.sparse.token_ids;
  const weights = floats(item.sparse_weights ?? item.sparse.weights, 1);
  return { token_ids: ids, tokens: item.sparse.tokens, weights: weights.data };
}
function summary(item) {
  const found = Object.entries(item.summary ?? {});
  for (const [name, value] of Object.entries(item)) {
    if (name.startsWith(SUMMARY)) found.push([name.slice(SUMMARY.length), value]);
  }
  const read = found.map(([name, value]) => [name, floats(value, 1)]);
  return read.length === 0 ? null : Object.fromEntries(read);
}
var STORED = {
  int8: Int8Array,
  binary: Int8Array,
  uint8: Uint8Array,
  ubinary: Uint8Array
};
function vectors(value, precision) {
  const type = STORED[precision];
  if (type === void 0 || value instanceof Tensor) return vectorTensor(value);
  if (value === void 0 || value === null) return null;
  const [data, shape] = flat(value);
  return new Tensor(type.from(data), shape);
}
function vectorTensor(value) {
  return value instanceof Tensor ? value : floats(value, 1);
}
function size(value) {
  return value instanceof Tensor ? value.data.length : flat(value)[0].length;
}
function length(item, name) {
  if (!Array.isArray(item[name])) throw new Error(`${name} is missing`);
  return item[name].length;
}

// ../client/js/src/errors.ts
var QUOTED = 200;
var PLACE = /\b(inputs|texts|token_ids)\.(\d+)\b/g;
var OWN = "urn:headlight:";
var HeadlightError = class extends Error {
  /** The HTTP status; null without a response. */
  status;
  /** The whole problem document. */
  document;
  /** `Retry-After` of the response, in milliseconds. */
  retryAfterMs;
  /** Which problem: `urn:headlight:too-many-inputs`. */
  type;
  title;
  limit;
  actual;
  allowed;
  /** The id of the request in the service's log. */
  requestId;
  /** What to change. Inputs are numbered from the start of the call. */
  detail;
  /** The invalid field, such as `inputs.17`. */
  field;
  /** The inputs of the request that failed, if the call took several. */
  rows = null;
  constructor(status, document2, retryAfterMs2 = null, cause) {
    super("", cause === void 0 ? void 0 : { cause });
    this.name = new.target.name;
    this.status = status;
    this.document = document2;
    this.retryAfterMs = retryAfterMs2;
    this.type = String(document2.type ?? "about:blank");
    this.title = String(document2.title ?? "");
    this.detail = String(document2.detail ?? "");
    this.field = document2.field ?? null;
    this.limit = document2.limit ?? null;
    this.actual = document2.actual ?? null;
    this.allowed = document2.allowed ?? null;
    this.requestId = document2.request_id ?? null;
    this.message = this.#told();
  }
  /** Record which inputs the request had, and number those that it names as the call does. */
  place(rows) {
    this.rows = rows;
    this.detail = countedFrom(rows.start, this.detail);
    this.field = this.field === null ? null : countedFrom(rows.start, this.field);
    this.message = this.#told();
  }
  #told() {
    const message = this.detail || this.title;
    const where = this.rows === null ? "" : ` [${named(this.rows)}]`;
    if (this.status === null) return message + where;
    const kind = this.type === "about:blank" ? this.title : this.type.replace(OWN, "");
    const request = this.requestId === null ? "" : `, request ${this.requestId}`;
    return `${message} (${this.status} ${kind}${request})${where}`;
  }
};
var HeadlightConnectionError = class extends HeadlightError {
  constructor(url, detail, cause) {
    super(null, { title: "No response", detail }, null, cause);
    this.url = url;
  }
  url;
};
var HeadlightTimeout = class extends HeadlightConnectionError {
};
var InputsError = class extends HeadlightError {
  constructor(detail, field) {
    super(null, { title: "The inputs cannot be sent", detail, field });
  }
};
function refusal(status, headers, content) {
  const text2 = new TextDecoder().decode(content);
  const wait = retryAfterMs(headers);
  try {
    const document2 = JSON.parse(text2);
    if (isProblem(document2)) return new HeadlightError(status, document2, wait);
  } catch {
  }
  return new HeadlightError(status, plain(headers, `HTTP ${status}`, text2), wait);
}
function unreadable(headers, reason) {
  if (reason instanceof HeadlightError) return reason;
  const why = reason instanceof Error ? reason.message : String(reason);
  const detail = `The response (${headers.get("content-type") ?? "no media type"}) cannot be read: ${why}.`;
  return new HeadlightError(200, plain(headers, "Unreadable response", detail), null, reason);
}
function isProblem(document2) {
  if (typeof document2 !== "object" || document2 === null) return false;
  return ["type", "title", "status"].every((member) => member in document2);
}
function retryAfterMs(headers) {
  const value = (headers.get("retry-after") ?? "").trim();
  if (/^\d+$/.test(value)) return 1e3 * Number(value);
  const until = Date.parse(value);
  if (Number.isNaN(until)) return null;
  const since = Date.parse(headers.get("date") ?? "");
  return Math.max(0, until - (Number.isNaN(since) ? Date.now() : since));
}
function plain(headers, title, text2) {
  const detail = text2.length <= QUOTED ? text2 : `${text2.slice(0, QUOTED)}…`;
  return { title, detail: detail.trim(), request_id: headers.get("x-request-id") };
}
function named({ start, stop }) {
  return stop - start === 1 ? `input ${start}` : `inputs ${start} to ${stop - 1}`;
}
function countedFrom(start, text2) {
  return text2.replace(PLACE, (_4, list2, index) => `${list2}.${Number(index) + start}`);
}

// ../client/js/src/inputs.ts
var SHOWN = 60;
var encoder = new TextEncoder();
function byteLength(text2) {
  return encoder.encode(text2).length;
}
function textRows(inputs, name, pairs) {
  const values = typeof inputs === "string" ? [inputs] : listed(inputs, name);
  values.forEach((value, i4) => check(value, i4, typeof values[0] === "string" || !pairs, name));
  return values.map((value) => row(JSON.stringify(value)));
}
function idRows(tokenIds, name) {
  const values = listed(isTyped(tokenIds) ? [tokenIds] : tokenIds, name);
  const texts2 = values.every((value) => typeof value === "number") ? [values] : values;
  return texts2.map((ids, i4) => {
    if (!Array.isArray(ids) && !isTyped(ids)) {
      throw new InputsError(`${name}[${i4}] is ${shown(ids)}, not a list of ids.`, `${name}.${i4}`);
    }
    const list2 = Array.from(ids);
    return { ...row(JSON.stringify(list2)), ids: list2.length };
  });
}
function row(json) {
  return { json, bytes: byteLength(json) };
}
function listed(inputs, name) {
  if (typeof inputs !== "object" || inputs === null || !(Symbol.iterator in inputs) || inputs instanceof Map) {
    throw new InputsError(`${name} is ${shown(inputs)}, which cannot be sent: pass a string or a list.`, name);
  }
  const values = [...inputs];
  if (values.length === 0) throw new InputsError(`${name} is empty: pass at least one text.`, name);
  return values;
}
function check(value, i4, texts2, name) {
  const place2 = `${name}[${i4}]`;
  const wrong = (detail) => new InputsError(`${place2} ${detail}`, `${name}.${i4}`);
  const isPair = Array.isArray(value) && value.length === 2 && value.every((one) => typeof one === "string");
  if (typeof value !== "string" && !isPair) throw wrong(`is ${shown(value)}, not a string: drop it or use "".`);
  if (isPair === texts2) {
    const [this_, other] = isPair ? ["a pair", "a text"] : ["a text", "a pair"];
    throw wrong(`is ${this_}, and ${other} is expected: pass only texts or only pairs.`);
  }
  if (new RegExp("\\p{Surrogate}", "u").test(isPair ? value.join("") : value)) {
    throw wrong("has a lone surrogate, half of a character: repair it with toWellFormed().");
  }
}
function isTyped(value) {
  return ArrayBuffer.isView(value) && !(value instanceof DataView);
}
function shown(value) {
  if (value === null || value === void 0 || Number.isNaN(value)) return String(value);
  const text2 = JSON.stringify(value) ?? String(value);
  return `${text2.length <= SHOWN ? text2 : `${text2.slice(0, SHOWN)}…`} (${typeof value})`;
}

// ../client/js/src/safetensors.ts
var LENGTH_BYTES = 8;
var TYPES = {
  F32: { bytes: 4, read: (buffer) => new Float32Array(buffer) },
  F16: { bytes: 2, read: (buffer) => fromFloat16(new Uint16Array(buffer)) },
  I32: { bytes: 4, read: (buffer) => new Int32Array(buffer) },
  I8: { bytes: 1, read: (buffer) => new Int8Array(buffer) },
  U8: { bytes: 1, read: (buffer) => new Uint8Array(buffer) }
};
function readSafetensors(content) {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const start = content.length < LENGTH_BYTES ? NaN : LENGTH_BYTES + Number(view.getBigUint64(0, true));
  if (!(start <= content.length)) throw new Error("the file is shorter than its header");
  const header = JSON.parse(new TextDecoder().decode(content.subarray(LENGTH_BYTES, start)));
  const { __metadata__: metadata = {}, ...entries } = header;
  const tensors = /* @__PURE__ */ new Map();
  for (const [name, entry] of Object.entries(entries)) {
    tensors.set(name, tensor(name, entry, content.subarray(start)));
  }
  return { metadata, tensors };
}
function tensor(name, entry, data) {
  const type = TYPES[entry.dtype];
  if (type === void 0) throw new Error(`tensor ${name} has the unknown type ${entry.dtype}`);
  const [begin, end] = entry.data_offsets;
  const count = product(entry.shape);
  if (end - begin !== count * type.bytes || begin < 0 || end > data.length) {
    throw new Error(`tensor ${name} does not lie within the file`);
  }
  return new Tensor(type.read(data.slice(begin, end).buffer, count), entry.shape);
}

// ../client/js/src/calls.ts
var FILE = "application/x-safetensors, application/json;q=0.5";
var JSON_ONLY = "application/json";
var LINES = "application/x-ndjson, application/json;q=0.5";
var Call = class {
  /** `complete` says whether the answer has an item for each input. */
  constructor(path, accept, field, rows, alone, options, read, complete = true) {
    this.path = path;
    this.accept = accept;
    this.field = field;
    this.rows = rows;
    this.alone = alone;
    this.read = read;
    this.complete = complete;
    const { signal, dtype, ...fields } = options;
    this.signal = signal;
    this.model = fields.model;
    this.#query = dtype === void 0 ? "" : `?dtype=${encodeURIComponent(dtype)}`;
    const members = JSON.stringify(fields).slice(1, -1);
    this.#options = members && `,${members}`;
    this.frameBytes = byteLength(`{"${field}":[]${this.#options}}`);
    this.#reading = { axes: axesOf(fields.attention ?? fields), scale: 1, precision: fields.precision ?? "float32" };
  }
  path;
  accept;
  field;
  rows;
  alone;
  read;
  complete;
  signal;
  model;
  /** The size of a body without its inputs and the commas between them. */
  frameBytes;
  #query;
  #options;
  #reading;
  get whole() {
    return { start: 0, stop: this.rows.length };
  }
  /** The request for a part of the inputs. */
  request({ start, stop }) {
    const inputs = this.rows.slice(start, stop).map(({ json }) => json).join(",");
    const body = `{"${this.field}":${this.alone ? inputs : `[${inputs}]`}${this.#options}}`;
    return { path: this.path + this.#query, accept: this.accept, body };
  }
  /** Parse the whole response to a part of the inputs, a file or JSON. */
  answer(rows, headers, content) {
    const [meta, arrays] = unpack(headers, content);
    const reading = { ...this.#reading, axes: meta.axes ?? this.#reading.axes, scale: meta.scale ?? 1 };
    const items = meta.data.map((item, i4) => ({ ...item, ...arrays.get(i4) }));
    if (this.complete) checkCount(items.length, rows);
    const id = headers.get("x-request-id");
    return new Answer(
      meta.model,
      items.map((item) => this.read(placed(item, rows), reading)),
      meta.usage,
      meta.max_error ?? null,
      id === null ? [] : [id],
      meta.method ?? null
    );
  }
  /** Parse the items of a streamed response to a part of the inputs, as they arrive. */
  async *lines(rows, headers, pieces) {
    try {
      if (mediaType(headers) !== "application/x-ndjson") {
        yield* this.answer(rows, headers, await joinedBytes(pieces));
        return;
      }
      let ended = false;
      for await (const line2 of linesOf(pieces)) {
        const document2 = JSON.parse(line2);
        if (isProblem(document2)) throw new HeadlightError(document2.status ?? null, document2);
        ended = "usage" in document2;
        if (!ended) yield this.read(placed(document2, rows), this.#reading);
      }
      if (!ended) throw new Error("it ends without the last line, which has the usage");
    } catch (error) {
      throw unreadable(headers, error);
    }
  }
};
function joined(answers) {
  const [first] = answers;
  const errors = answers.map(({ maxError }) => maxError);
  return new Answer(
    first.model,
    answers.flatMap(({ items }) => items),
    { input_tokens: answers.reduce((sum, { usage }) => sum + usage.input_tokens, 0) },
    errors.includes(null) ? null : Math.max(...errors),
    answers.flatMap(({ requestIds }) => requestIds),
    first.method
  );
}
function checkCount(count, { start, stop }) {
  if (count !== stop - start) throw new Error(`it has ${count} items, not ${stop - start}`);
}
function unpack(headers, content) {
  if (mediaType(headers) !== "application/x-safetensors") {
    return [JSON.parse(new TextDecoder().decode(content)), /* @__PURE__ */ new Map()];
  }
  const { metadata, tensors } = readSafetensors(content);
  const items = /* @__PURE__ */ new Map();
  for (const [member, tensor2] of tensors) {
    const [index, ...rest] = member.split(".");
    const name = rest.join(".");
    const item = items.get(Number(index)) ?? {};
    items.set(Number(index), Object.assign(item, { [name === "chunks" ? "chunks.embeddings" : name]: tensor2 }));
  }
  const document2 = JSON.parse(metadata["headlight"] ?? "null");
  return [{ ...document2, similarities: tensors.get("similarities") }, items];
}
function placed(item, { start }) {
  return { ...item, index: item.index + start };
}
function axesOf({ maps: maps3, aggregate }) {
  if (maps3 === false) return AXES.slice(0, 2);
  if (aggregate === "rollout") return AXES.slice(2);
  return AXES.filter((axis) => axis !== "head" || aggregate === void 0 || aggregate === "none");
}
function mediaType(headers) {
  return (headers.get("content-type") ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
}
async function* linesOf(pieces) {
  const decoder = new TextDecoder();
  let begun = [];
  for await (const piece of pieces) {
    const [first, ...more] = decoder.decode(piece, { stream: true }).split("\n");
    begun.push(first);
    for (const next of more) {
      const line2 = begun.join("");
      begun = [next];
      if (line2.trim()) yield line2;
    }
  }
  const last = begun.join("") + decoder.decode();
  if (last.trim()) yield last;
}
async function joinedBytes(pieces) {
  const parts = [];
  for await (const piece of pieces) parts.push(piece);
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

// ../client/js/src/many.ts
async function sendAll(parts, send, concurrency, signal) {
  const answers = /* @__PURE__ */ new Map();
  const progress = { at: 0 };
  const controller = new AbortController();
  const cancel = () => controller.abort(signal?.reason);
  signal?.throwIfAborted();
  signal?.addEventListener("abort", cancel);
  const failures = [];
  async function work() {
    try {
      for (let part = parts.next(); part !== null && !controller.signal.aborted; part = parts.next()) {
        try {
          answers.set(part.start, await send(part, controller.signal, progress));
          progress.at = performance.now();
        } catch (error) {
          parts.refused(error, part);
        }
      }
    } catch (error) {
      failures.push(error);
      controller.abort();
    }
  }
  await Promise.all(Array.from({ length: Math.min(concurrency, parts.rows.length) }, work));
  signal?.removeEventListener("abort", cancel);
  signal?.throwIfAborted();
  if (failures.length > 0) throw failures[0];
  return [...answers.keys()].sort((a5, b3) => a5 - b3).map((start) => answers.get(start));
}

// ../client/js/src/predictions.ts
function predicted(item, reading) {
  return {
    ...tokens(item, reading),
    labels: item.labels ?? null,
    token_labels: item.token_labels ?? null,
    token_scores: floats(item.token_scores, 1)?.data ?? null,
    entities: item.entities ?? null,
    maps: maps(item, reading)
  };
}
function ranked(item, reading) {
  if (typeof item.score !== "number") throw new Error("score is missing");
  return {
    index: item.index,
    score: item.score,
    text: item.text ?? null,
    truncated: item.truncated,
    original_length: item.original_length,
    maps: maps(item, reading)
  };
}
function decoded(item) {
  if (typeof item.text !== "string") throw new Error("text is missing");
  return item.text;
}
function best(whole3, topN) {
  const items = [...whole3].sort((a5, b3) => b3.score - a5.score || a5.index - b3.index).slice(0, topN);
  return new Answer(whole3.model, items, whole3.usage, whole3.maxError, whole3.requestIds, whole3.method);
}
function maps(item, reading) {
  return item.layers === void 0 ? null : attentionMaps(item, reading);
}

// ../client/js/src/retry.ts
var RETRIED = [429, 503];
var FIRST_MS = 100;
var LONGEST_MS = 5e3;
var SPREAD = 0.25;
var SPREAD_MS = 1e3;
var Attempts = class {
  constructor(policy, progress) {
    this.policy = policy;
    this.progress = progress;
  }
  policy;
  progress;
  #made = 1;
  #start = performance.now();
  /** Count a failure; returns the milliseconds until the next attempt, or throws the error. */
  waitAfter(error) {
    if (this.progress.at > this.#start) {
      this.#start = this.progress.at;
      this.#made = 1;
    }
    const elapsed = performance.now() - this.#start;
    const wait = decide(error, this.policy, this.#made, elapsed, Math.random());
    if (wait === null) throw error;
    this.#made += 1;
    return wait;
  }
};
function decide(error, policy, made, elapsed, chance) {
  if (made > policy.count || !isTemporary(error)) return null;
  const remaining = policy.ms - elapsed;
  const least = error.retryAfterMs;
  if (least === null) {
    const wait = Math.min(LONGEST_MS, FIRST_MS * 2 ** (made - 1)) * (1 + chance) / 2;
    return wait <= remaining ? wait : null;
  }
  if (least > remaining) return null;
  return Math.min(remaining, least + chance * Math.min(SPREAD_MS, FIRST_MS + SPREAD * least));
}
function isTemporary(error) {
  if (error instanceof HeadlightConnectionError) return !(error instanceof HeadlightTimeout);
  return error instanceof HeadlightError && RETRIED.includes(error.status);
}

// ../client/js/src/sending.ts
var OK = 200;
var LATE = /* @__PURE__ */ new Set(["UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT", "UND_ERR_CONNECT_TIMEOUT"]);
async function fetchWhole(connection, wire, signal, read, progress = { at: 0 }) {
  const exchange = await open(connection, wire, signal, progress);
  try {
    const content = await exchange.content();
    try {
      return read(exchange.headers, content);
    } catch (error) {
      throw unreadable(exchange.headers, error);
    }
  } finally {
    exchange.close();
  }
}
async function open(connection, wire, signal, progress = { at: 0 }) {
  const attempts = new Attempts(connection.retries, progress);
  for (; ; ) {
    let wait;
    try {
      return await Exchange.begin(connection, wire, signal);
    } catch (error) {
      signal?.throwIfAborted();
      wait = attempts.waitAfter(error);
    }
    await pause(wait, signal);
  }
}
var Exchange = class _Exchange {
  constructor(connection, wire, signal) {
    this.connection = connection;
    this.signal = signal;
    this.#url = connection.url + wire.path;
    signal?.throwIfAborted();
    signal?.addEventListener("abort", this.#abort);
  }
  connection;
  signal;
  #controller = new AbortController();
  #url;
  #abort = () => this.#controller.abort();
  #timer;
  #late = false;
  #response;
  /** Send a request once. Throws a HeadlightError for any status except 200. */
  static async begin(connection, wire, signal) {
    const exchange = new _Exchange(connection, wire, signal);
    try {
      await exchange.#send(wire);
      if (exchange.#response?.status === OK) return exchange;
      const status = exchange.#response?.status ?? 0;
      throw refusal(status, exchange.headers, await exchange.content());
    } catch (error) {
      exchange.close();
      throw exchange.#explained(error);
    }
  }
  get headers() {
    return this.#response?.headers ?? new Headers();
  }
  /** The pieces of the body as they arrive. */
  async *pieces() {
    const reader = this.#response?.body?.getReader();
    if (reader === void 0) return;
    try {
      for (; ; ) {
        this.#await();
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(this.#timer);
        yield value;
      }
    } catch (error) {
      throw this.#explained(error);
    }
  }
  /** The whole body. */
  async content() {
    const pieces = [];
    for await (const piece of this.pieces()) pieces.push(piece);
    const whole3 = new Uint8Array(pieces.reduce((length2, piece) => length2 + piece.length, 0));
    let start = 0;
    for (const piece of pieces) {
      whole3.set(piece, start);
      start += piece.length;
    }
    return whole3;
  }
  /** End the exchange: the service sees that nothing more is read. */
  close() {
    clearTimeout(this.#timer);
    this.signal?.removeEventListener("abort", this.#abort);
    this.#controller.abort();
  }
  async #send({ accept, body }) {
    const headers = new Headers(this.connection.headers);
    if (accept !== void 0) headers.set("Accept", accept);
    if (body !== void 0) headers.set("Content-Type", "application/json");
    this.#await();
    this.#response = await fetch(this.#url, {
      headers,
      signal: this.#controller.signal,
      ...body === void 0 ? {} : { method: "POST", body }
    });
  }
  #await() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#late = true;
      this.#controller.abort();
    }, this.connection.timeoutMs);
  }
  /** The error to throw for one of `fetch` or of reading a body; the caller's own reason if it cancelled the call. */
  #explained(error) {
    if (this.signal?.aborted) return this.signal.reason;
    if (error instanceof HeadlightError) return error;
    const cause = error.cause;
    if (this.#late || LATE.has(String(cause?.code))) {
      const within2 = this.#late ? `for ${this.connection.timeoutMs / 1e3} s` : "in time";
      const help = "allow more with timeoutMs, or send fewer texts at a time";
      return new HeadlightTimeout(this.#url, `${this.#url} sent nothing ${within2}: ${help}.`, error);
    }
    const reason = cause?.message || cause?.code || (error instanceof Error ? error.message : String(error));
    const detail = this.#response ? `The connection to ${this.#url} broke before the response was complete: ${reason}.` : `${this.#url} cannot be reached: ${reason}. Check the URL and that the service is running; client.waitUntilReady() waits for a service that is starting.`;
    return new HeadlightConnectionError(this.#url, detail, error);
  }
};
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

// ../client/js/src/splitting.ts
var MAX_INPUTS = 256;
var MAX_BODY_BYTES = 512 * 1024;
var MAX_IDS = 32768;
var QUEUE_TOKENS = 65536;
var SHARE = 2;
var BYTES_PER_TOKEN = 3;
var MARGIN = 0.9;
var TOO_LARGE = 413;
var TOO_LATE = 504;
function limitsOf(info, model) {
  const served = info?.models?.find(({ name }) => model === void 0 || model === name);
  return {
    inputs: info?.limits?.max_inputs ?? MAX_INPUTS,
    bodyBytes: Math.min(info?.limits?.max_body_bytes ?? MAX_BODY_BYTES, MAX_BODY_BYTES),
    queueTokens: served?.max_queue_tokens ?? QUEUE_TOKENS,
    maxLength: served?.max_length ?? Infinity
  };
}
var Parts = class {
  /** `frameBytes` is the size of a body without its inputs; `concurrency` requests are in flight at a time. */
  constructor(rows, limits, frameBytes, concurrency) {
    this.rows = rows;
    this.frameBytes = frameBytes;
    this.#limits = limits;
    this.#tokens = Math.max(1, Math.floor(limits.queueTokens / (SHARE * concurrency)));
  }
  rows;
  frameBytes;
  #limits;
  #next = 0;
  #again = [];
  #tokens;
  /** The next part, or null after the last. */
  next() {
    const again = this.#again.shift();
    if (again !== void 0) return again;
    if (this.#next === this.rows.length) return null;
    const start = this.#next;
    this.#next = start + this.#fitting(start);
    return { start, stop: this.#next };
  }
  /** Split a part that was too large or too slow, to be sent again; throws any other error. */
  refused(error, part) {
    const count = this.learn(error, part.stop - part.start);
    if (count === null) throw this.placed(error, part);
    for (let start = part.start; start < part.stop; start += count) {
      this.#again.push({ start, stop: Math.min(start + count, part.stop) });
    }
  }
  /** Record in an error which inputs it concerns, unless they are all of the call. */
  placed(error, part) {
    if (error instanceof HeadlightError && part.stop - part.start < this.rows.length) error.place(part);
    return error;
  }
  /** How many inputs to send per request if `count` were too many; null for any other error. */
  learn(error, count) {
    if (!isTooMuch(error) || count === 1) return null;
    const fitting = fittingAfter(error, count);
    this.#limits = { ...this.#limits, inputs: Math.min(this.#limits.inputs, fitting) };
    return Math.ceil(count / Math.ceil(count / fitting));
  }
  /** Count the inputs from `start` that fit into one request: at least one, whatever its size. */
  #fitting(start) {
    const last = Math.min(this.rows.length, start + this.#limits.inputs);
    let bytes = this.frameBytes;
    let tokens2 = 0;
    let ids = 0;
    for (let i4 = start; i4 < last; i4++) {
      const row2 = this.rows[i4];
      bytes += row2.bytes + 1;
      ids += row2.ids ?? 0;
      tokens2 += row2.ids === void 0 ? Math.min(this.#limits.maxLength, row2.bytes / BYTES_PER_TOKEN) : 0;
      if (bytes > this.#limits.bodyBytes || tokens2 > this.#tokens || ids > MAX_IDS) return Math.max(1, i4 - start);
    }
    return last - start;
  }
};
function isTooMuch(error) {
  return error instanceof HeadlightError && (error.status === TOO_LARGE || error.status === TOO_LATE);
}
function fittingAfter({ limit, actual, type }, count) {
  if (typeof limit !== "number" || typeof actual !== "number" || !(0 < limit && limit < actual)) {
    return Math.floor(count / 2);
  }
  const margin = type.endsWith("too-many-inputs") ? 1 : MARGIN;
  return Math.min(count - 1, Math.max(1, Math.floor(margin * count * limit / actual)));
}

// ../client/js/src/client.ts
var TEMPORARY = [408, 429, 500, 502, 503, 504];
var UNAUTHORIZED = 401;
var ATTEMPT_MS = 5e3;
var READY_MS = { first: 100, longest: 2e3 };
var Headlight = class {
  #connection;
  #known = null;
  /** Throws a TypeError or a RangeError for a setting that is not valid. */
  constructor(url = "http://127.0.0.1:8000", settings = {}) {
    const { apiKey, timeoutMs = 6e4, retries = 5, retryForMs = 6e4, concurrency = 4 } = settings;
    if (!/^https?:\/\//.test(url)) {
      throw new TypeError(`url is ${url}: include the scheme, such as http://127.0.0.1:8000.`);
    }
    for (const [name, value, least] of [
      ["timeoutMs", timeoutMs, 1],
      ["retries", retries, 0],
      ["retryForMs", retryForMs, 0],
      ["concurrency", concurrency, 1]
    ]) {
      if (!(value >= least)) throw new RangeError(`${name} is ${value}: it must be at least ${least}.`);
    }
    const headers = new Headers(settings.headers);
    if (apiKey !== void 0) headers.set("Authorization", `Bearer ${apiKey}`);
    const policy = { count: retries, ms: retryForMs };
    this.#connection = { url: url.replace(/\/+$/, ""), headers, timeoutMs, retries: policy, concurrency };
  }
  /** `POST /encode`: sentence vectors, or with `outputs` vectors of tokens or sparse ones. */
  encode(inputs, options = {}) {
    return this.#fetch(() => texts("/encode", FILE, inputs, options, encoded));
  }
  /** `POST /attention`: maps, (layer, head, query, key) by default. */
  attention(inputs, options = {}) {
    return this.#fetch(() => texts("/attention", FILE, inputs, options, attentionMaps));
  }
  /** Like `encode`, but yields each item as soon as it is ready, in any order: see `item.index`. */
  streamEncode(inputs, options = {}) {
    return this.#stream(() => texts("/encode", LINES, inputs, options, encoded));
  }
  /** Like `attention`, but yields each item as soon as it is ready, rounded to `decimals`, in any order. */
  streamAttention(inputs, options = {}) {
    return this.#stream(() => texts("/attention", LINES, inputs, options, attentionMaps));
  }
  /** `POST /predict`: classes of texts, or of their tokens, with scores. */
  predict(inputs, options = {}) {
    return this.#fetch(() => texts("/predict", JSON_ONLY, inputs, options, predicted));
  }
  /** `POST /rerank`: any number of texts, the best match of a query first. */
  async rerank(query, texts2, options = {}) {
    const rows = textRows(texts2, "texts", false);
    const call = new Call("/rerank", JSON_ONLY, "texts", rows, false, { query, ...options }, ranked, false);
    return best(await this.#fetch(() => call), options.top_n);
  }
  /** `POST /similarity`: of texts to a `source`, or without one of all texts to each other, in one request. */
  async similarity(texts2, options = {}) {
    const rows = textRows(texts2, "texts", false);
    const call = new Call("/similarity", FILE, "texts", rows, false, options, decoded);
    return fetchWhole(this.#connection, call.request(call.whole), call.signal, (headers, content) => {
      const [meta] = unpack(headers, content);
      const similarities = floats(meta.similarities, 1);
      checkCount(similarities?.shape[0], call.whole);
      const requestIds = [headers.get("x-request-id")].filter((id) => id !== null);
      const { model, usage } = meta;
      return { model, function: meta.function, similarities, usage, requestIds };
    });
  }
  /** `POST /tokenize`: the tokens that the model would run. */
  tokenize(inputs, options = {}) {
    return this.#fetch(() => texts("/tokenize", JSON_ONLY, inputs, options, tokens));
  }
  /** `POST /decode`: the text of each list of token ids. */
  decode(tokenIds, options = {}) {
    const rows = () => idRows(tokenIds, "token_ids");
    return this.#fetch(() => new Call("/decode", JSON_ONLY, "token_ids", rows(), false, options, decoded));
  }
  /** `GET /info`: the version, the served models and the limits. */
  info({ signal } = {}) {
    return fetchWhole(this.#connection, { path: "/info" }, signal, (_4, content) => {
      const info = JSON.parse(new TextDecoder().decode(content));
      if (!Array.isArray(info.models)) throw new Error("models is missing");
      return info;
    });
  }
  /** Whether `GET /readyz` returns 200 now. Throws only if the service cannot be asked. */
  async isReady({ signal } = {}) {
    try {
      (await Exchange.begin(this.#connection, { path: "/readyz" }, signal)).close();
      return true;
    } catch (error) {
      if (error instanceof HeadlightError && TEMPORARY.includes(error.status)) return false;
      throw error;
    }
  }
  /** Wait until `GET /readyz` returns 200. Throws a HeadlightTimeout, with the last error as its `cause`. */
  async waitUntilReady(options = {}) {
    const { timeoutMs = 6e4, signal } = options;
    const until = performance.now() + timeoutMs;
    for (let wait = READY_MS.first; ; wait = Math.min(2 * wait, READY_MS.longest)) {
      const left = Math.max(READY_MS.first, until - performance.now());
      const connection = { ...this.#connection, timeoutMs: Math.min(ATTEMPT_MS, left) };
      try {
        return (await Exchange.begin(connection, { path: "/readyz" }, signal)).close();
      } catch (error) {
        const passes = error instanceof HeadlightConnectionError;
        if (!passes && !(error instanceof HeadlightError && TEMPORARY.includes(error.status))) throw error;
        if (performance.now() + wait > until) {
          const url = `${connection.url}/readyz`;
          const detail = `${url} was not ready within ${timeoutMs / 1e3} s. Last error: ${error.message}`;
          throw new HeadlightTimeout(url, detail, error);
        }
      }
      await pause(wait, signal);
    }
  }
  async #fetch(make) {
    const call = make();
    let refused = null;
    if (this.#isSmall(call)) {
      try {
        return await this.#sendPart(call, call.whole, call.signal);
      } catch (error) {
        if (!isTooMuch(error) || call.rows.length === 1) throw error;
        refused = error;
      }
    }
    const { concurrency } = this.#connection;
    const parts = await this.#parts(call, concurrency);
    if (refused !== null) parts.learn(refused, call.rows.length);
    const send = (part, signal, progress) => this.#sendPart(call, part, signal, progress);
    return joined(await sendAll(parts, send, concurrency, call.signal));
  }
  #sendPart(call, part, signal, progress) {
    const read = (headers, content) => call.answer(part, headers, content);
    return fetchWhole(this.#connection, call.request(part), signal, read, progress);
  }
  async *#stream(make) {
    const call = make();
    const parts = this.#isSmall(call) ? this.#one(call) : await this.#parts(call, 1);
    for (let part = parts.next(); part !== null; part = parts.next()) {
      let exchange;
      try {
        exchange = await open(this.#connection, call.request(part), call.signal);
      } catch (error) {
        parts.refused(error, part);
        continue;
      }
      try {
        yield* call.lines(part, exchange.headers, exchange.pieces());
      } catch (error) {
        call.signal?.throwIfAborted();
        throw parts.placed(error, part);
      } finally {
        exchange.close();
      }
    }
  }
  /** Whether to send a call in one request, and split it only if the service refuses that. */
  #isSmall(call) {
    const limits = limitsOf(this.#known, call.model);
    const bytes = call.rows.reduce((sum, row2) => sum + row2.bytes + 1, call.frameBytes);
    const ids = call.rows.reduce((sum, row2) => sum + (row2.ids ?? 0), 0);
    const most = Math.min(limits.inputs, MAX_INPUTS);
    return call.rows.length === 1 || call.rows.length <= most && bytes <= limits.bodyBytes && ids <= MAX_IDS;
  }
  #one(call) {
    const limits = { inputs: Infinity, bodyBytes: Infinity, queueTokens: Infinity, maxLength: Infinity };
    return new Parts(call.rows, limits, call.frameBytes, 1);
  }
  async #parts(call, concurrency) {
    this.#known ??= await this.info(call).catch(withoutInfo);
    return new Parts(call.rows, limitsOf(this.#known, call.model), call.frameBytes, concurrency);
  }
};
function withoutInfo(error) {
  const { status } = error instanceof HeadlightError ? error : { status: null };
  if (status === null || status === UNAUTHORIZED || RETRIED.includes(status)) throw error;
  return {};
}
function texts(path, accept, inputs, options, read) {
  return new Call(path, accept, "inputs", textRows(inputs, "inputs", true), typeof inputs === "string", options, read);
}

// src/data/http.ts
var KEY = "headlight-key";
var RETRY_MS = 1e4;
var HttpSource = class {
  constructor(url) {
    this.url = url;
    this.#client = this.#connect(stored());
  }
  url;
  kind = "http";
  #client;
  useKey(key) {
    try {
      sessionStorage.setItem(KEY, key);
    } catch {
    }
    this.#client = this.#connect(key);
  }
  info() {
    return this.#client.info();
  }
  attention(inputs, options) {
    return this.#client.attention(inputs, options);
  }
  tokenize(inputs, options) {
    return this.#client.tokenize(inputs, options);
  }
  #connect(key) {
    return new Headlight(this.url, { retryForMs: RETRY_MS, ...key === null ? {} : { apiKey: key } });
  }
};
function stored() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

// node_modules/preact/hooks/dist/hooks.mjs
var t2;
var r2;
var u2;
var i2;
var o2 = Object.is;
var f2 = 0;
var c2 = [];
var e2 = [];
var a2 = n;
var v2 = a2.__b;
var l2 = a2.__r;
var m2 = a2.diffed;
var h2 = a2.__c;
var s2 = a2.unmount;
var p2 = a2.__;
function y2(n3, t4) {
  a2.__h && a2.__h(r2, n3, f2 || t4), f2 = 0;
  var u4 = r2.__H || (r2.__H = { __: [], __h: [] });
  return n3 >= u4.__.length && u4.__.push({}), u4.__[n3];
}
function A2(n3, u4) {
  var i4 = y2(t2++, 3);
  !a2.__s && E2(i4.__H, u4) && (i4.__P = true, i4.__ = n3, i4.u = u4, r2.__H.__h.push(i4));
}
function T2(n3) {
  return f2 = 5, w2(function() {
    return { current: n3 };
  }, []);
}
function w2(n3, r4) {
  var u4 = y2(t2++, 7);
  return E2(u4.__H, r4) && (u4.__ = n3(), u4.__H = r4), u4.__;
}
function j2(n3) {
  var u4 = r2.context[n3.__c], i4 = y2(t2++, 9);
  return i4.c = n3, u4 ? (null == i4.__ && (i4.__ = true, u4.sub(r2)), u4.props.value) : n3.__;
}
function g2() {
  var n3;
  do {
    for (; n3 = e2.shift(); ) try {
      C2(n3);
    } catch (t5) {
      a2.__e(t5, { __: (n3 = n3.__P) && n3.__v });
    }
    for (; n3 = c2.shift(); ) {
      var t4 = n3.__H;
      if (n3.__P && t4) try {
        t4.__h.some(C2), t4.__h.some(D2), t4.__h = [];
      } catch (r4) {
        t4.__h = [], a2.__e(r4, n3.__v);
      }
    }
  } while (e2.length);
}
a2.__b = function(n3) {
  r2 = null, v2 && v2(n3);
}, a2.__ = function(n3, t4) {
  n3 && t4.__k && t4.__k.__m && (n3.__m = t4.__k.__m), p2 && p2(n3, t4);
}, a2.__r = function(n3) {
  l2 && l2(n3), t2 = 0;
  var i4 = (r2 = n3.__c).__H;
  i4 && (u2 == r2 ? r2.__h = [] : (i4.__h.some(C2), i4.__h.some(D2), t2 = 0), i4.__h = [], i4.__.some(function(n4) {
    n4.__N && (n4.__ = n4.__N), n4.u = n4.__N = void 0;
  })), u2 = r2;
}, a2.diffed = function(n3) {
  m2 && m2(n3);
  var t4 = n3.__c;
  t4 && t4.__H && (t4.__H.__h.length && B2(c2.push(t4)), t4.__H.__.some(function(n4) {
    n4.u && (n4.__H = n4.u);
  })), u2 = r2 = null;
}, a2.__c = function(n3, t4) {
  t4.some(function(n4) {
    try {
      n4.__h.some(C2), n4.__h = n4.__h.filter(function(n5) {
        return !n5.__ || D2(n5);
      });
    } catch (t5) {
      n4.__h = [function() {
        throw t5;
      }];
    }
  }), h2 && h2(n3, t4);
}, a2.unmount = function(n3) {
  s2 && s2(n3);
  var t4, r4, u4 = n3.__c;
  u4 && u4.__H && (u4.__H.__.some(function(u5) {
    try {
      if (u5.__P && u5.__c) {
        if (void 0 === r4) {
          for (r4 = n3.__; r4 && (!r4.__c || !r4.__c.__P); ) r4 = r4.__;
          r4 = r4 && r4.__c;
        }
        u5.__P = r4, B2(e2.push(u5));
      } else C2(u5);
    } catch (n4) {
      t4 = n4;
    }
  }), u4.__H = void 0, t4 && a2.__e(t4, u4.__v));
};
var k2 = "function" == typeof requestAnimationFrame;
function z2(n3) {
  var t4, r4 = function() {
    clearTimeout(u4), k2 && cancelAnimationFrame(t4), setTimeout(n3);
  }, u4 = setTimeout(r4, 35);
  k2 && (t4 = requestAnimationFrame(r4));
}
function B2(n3) {
  1 != n3 && i2 == a2.requestAnimationFrame || ((i2 = a2.requestAnimationFrame) || z2)(g2);
}
function C2(n3) {
  var t4 = r2, u4 = n3.__c;
  "function" == typeof u4 && (n3.__c = void 0, u4()), r2 = t4;
}
function D2(n3) {
  var t4 = r2;
  n3.__c = n3.__(), r2 = t4;
}
function E2(n3, t4) {
  return !n3 || n3.length != t4.length || t4.some(function(t5, r4) {
    return !o2(t5, n3[r4]);
  });
}

// node_modules/@preact/signals-core/dist/signals-core.module.js
var i3 = /* @__PURE__ */ Symbol.for("preact-signals");
function t3() {
  if (!(v3 > 1)) {
    var i4, t4 = false;
    !(function() {
      var i5 = c3;
      c3 = void 0;
      while (void 0 !== i5) {
        var t5 = i5.S;
        if (t5.v === i5.v) {
          for (var r5 = t5.t; void 0 !== r5; r5 = r5.x) if (r5.i === i5.i) r5.i = t5.i;
        }
        i5 = i5.o;
      }
    })();
    while (void 0 !== h3) {
      var r4 = h3;
      h3 = void 0;
      s3++;
      while (void 0 !== r4) {
        var n3 = r4.u;
        r4.u = void 0;
        r4.f &= -3;
        if (!(8 & r4.f) && w3(r4)) try {
          r4.c();
        } catch (r5) {
          if (!t4) {
            i4 = r5;
            t4 = true;
          }
        }
        r4 = n3;
      }
    }
    s3 = 0;
    v3--;
    if (t4) throw i4;
  } else v3--;
}
function r3(i4) {
  if (v3 > 0) return i4();
  u3 = ++e3;
  v3++;
  try {
    return i4();
  } finally {
    t3();
  }
}
var n2;
var o3 = void 0;
function f3(i4) {
  var t4 = o3, r4 = n2;
  o3 = void 0;
  n2 = void 0;
  try {
    return i4();
  } finally {
    o3 = t4;
    n2 = r4;
  }
}
var h3 = void 0;
var v3 = 0;
var s3 = 0;
var e3 = 0;
var u3 = 0;
var c3 = void 0;
var a3 = 0;
function d2(i4) {
  if (void 0 !== o3) {
    var t4 = i4.n;
    if (void 0 === t4 || t4.t !== o3) {
      t4 = { i: 0, S: i4, p: o3.s, n: void 0, t: o3, e: void 0, x: void 0, r: t4 };
      if (void 0 !== o3.s) o3.s.n = t4;
      o3.s = t4;
      i4.n = t4;
      if (32 & o3.f) i4.S(t4);
      return t4;
    } else if (-1 === t4.i) {
      t4.i = 0;
      if (void 0 !== t4.n) {
        t4.n.p = t4.p;
        if (void 0 !== t4.p) t4.p.n = t4.n;
        t4.p = o3.s;
        t4.n = void 0;
        o3.s.n = t4;
        o3.s = t4;
      }
      return t4;
    }
  }
}
function l3(i4, t4) {
  this.v = i4;
  this.i = 0;
  this.n = void 0;
  this.t = void 0;
  this.l = 0;
  this.W = null == t4 ? void 0 : t4.watched;
  this.Z = null == t4 ? void 0 : t4.unwatched;
  this.name = null == t4 ? void 0 : t4.name;
}
l3.prototype.brand = i3;
l3.prototype.h = function() {
  return true;
};
l3.prototype.S = function(i4) {
  var t4 = this, r4 = this.t;
  if (r4 !== i4 && void 0 === i4.e) {
    i4.x = r4;
    this.t = i4;
    if (void 0 !== r4) r4.e = i4;
    else f3(function() {
      var i5;
      null == (i5 = t4.W) || i5.call(t4);
    });
  }
};
l3.prototype.U = function(i4) {
  var t4 = this;
  if (void 0 !== this.t) {
    var r4 = i4.e, n3 = i4.x;
    if (void 0 !== r4) {
      r4.x = n3;
      i4.e = void 0;
    }
    if (void 0 !== n3) {
      n3.e = r4;
      i4.x = void 0;
    }
    if (i4 === this.t) {
      this.t = n3;
      if (void 0 === n3) f3(function() {
        var i5;
        null == (i5 = t4.Z) || i5.call(t4);
      });
    }
  }
};
l3.prototype.subscribe = function(i4) {
  var t4 = this;
  return x2(function() {
    var r4 = t4.value;
    f3(function() {
      return i4(r4);
    });
  }, { name: "sub" });
};
l3.prototype.valueOf = function() {
  return this.value;
};
l3.prototype.toString = function() {
  return this.value + "";
};
l3.prototype.toJSON = function() {
  return this.value;
};
l3.prototype.peek = function() {
  var i4 = this;
  return f3(function() {
    return i4.value;
  });
};
Object.defineProperty(l3.prototype, "value", { get: function() {
  var i4 = d2(this);
  if (void 0 !== i4) i4.i = this.i;
  return this.v;
}, set: function(i4) {
  if (i4 !== this.v) {
    if (s3 > 100) throw new Error("Cycle detected");
    !(function(i5) {
      if (0 !== v3 && 0 === s3) {
        if (i5.l !== u3) {
          i5.l = u3;
          c3 = { S: i5, v: i5.v, i: i5.i, o: c3 };
        }
      }
    })(this);
    this.v = i4;
    this.i++;
    a3++;
    v3++;
    try {
      for (var r4 = this.t; void 0 !== r4; r4 = r4.x) r4.t.N();
    } finally {
      t3();
    }
  }
} });
function y3(i4, t4) {
  return new l3(i4, t4);
}
function w3(i4) {
  for (var t4 = i4.s; void 0 !== t4; t4 = t4.n) if (t4.S.i !== t4.i || !t4.S.h() || t4.S.i !== t4.i) return true;
  return false;
}
function b(i4) {
  for (var t4 = i4.s; void 0 !== t4; t4 = t4.n) {
    var r4 = t4.S.n;
    if (void 0 !== r4) t4.r = r4;
    t4.S.n = t4;
    t4.i = -1;
    if (void 0 === t4.n) {
      i4.s = t4;
      break;
    }
  }
}
function _2(i4) {
  var t4 = i4.s, r4 = void 0;
  while (void 0 !== t4) {
    var n3 = t4.p;
    if (-1 === t4.i) {
      t4.S.U(t4);
      if (void 0 !== n3) n3.n = t4.n;
      if (void 0 !== t4.n) t4.n.p = n3;
    } else r4 = t4;
    t4.S.n = t4.r;
    if (void 0 !== t4.r) t4.r = void 0;
    t4 = n3;
  }
  i4.s = r4;
}
function j3(i4, t4) {
  l3.call(this, void 0, t4);
  this.x = i4;
  this.s = void 0;
  this.g = a3 - 1;
  this.f = 4;
}
j3.prototype = new l3();
j3.prototype.h = function() {
  this.f &= -3;
  if (1 & this.f) return false;
  if (32 == (36 & this.f)) return true;
  this.f &= -5;
  if (this.g === a3) return true;
  this.g = a3;
  this.f |= 1;
  if (this.i > 0 && !w3(this)) {
    this.f &= -2;
    return true;
  }
  var i4 = o3;
  try {
    b(this);
    o3 = this;
    var t4 = this.x();
    if (16 & this.f || this.v !== t4 || 0 === this.i) {
      this.v = t4;
      this.f &= -17;
      this.i++;
    }
  } catch (i5) {
    this.v = i5;
    this.f |= 16;
    this.i++;
  }
  o3 = i4;
  _2(this);
  this.f &= -2;
  return true;
};
j3.prototype.S = function(i4) {
  if (void 0 === this.t) {
    this.f |= 36;
    for (var t4 = this.s; void 0 !== t4; t4 = t4.n) t4.S.S(t4);
  }
  l3.prototype.S.call(this, i4);
};
j3.prototype.U = function(i4) {
  if (void 0 !== this.t) {
    l3.prototype.U.call(this, i4);
    if (void 0 === this.t) {
      this.f &= -33;
      for (var t4 = this.s; void 0 !== t4; t4 = t4.n) t4.S.U(t4);
    }
  }
};
j3.prototype.N = function() {
  if (!(2 & this.f)) {
    this.f |= 6;
    for (var i4 = this.t; void 0 !== i4; i4 = i4.x) i4.t.N();
  }
};
Object.defineProperty(j3.prototype, "value", { get: function() {
  if (1 & this.f) throw new Error("Cycle detected");
  var i4 = d2(this);
  this.h();
  if (void 0 !== i4) i4.i = this.i;
  if (16 & this.f) throw this.v;
  return this.v;
} });
function O(i4, t4) {
  return new j3(i4, t4);
}
function p3(i4) {
  var r4 = i4.j;
  i4.j = void 0;
  if ("function" == typeof r4) {
    v3++;
    var n3 = o3;
    o3 = void 0;
    try {
      r4();
    } catch (t4) {
      i4.f &= -2;
      i4.f |= 8;
      g3(i4);
      throw t4;
    } finally {
      o3 = n3;
      t3();
    }
  }
}
function g3(i4) {
  for (var t4 = i4.s; void 0 !== t4; t4 = t4.n) t4.S.U(t4);
  i4.x = void 0;
  i4.s = void 0;
  p3(i4);
}
function S2(i4) {
  if (o3 !== this) throw new Error("Out-of-order effect");
  _2(this);
  o3 = i4;
  this.f &= -2;
  try {
    if (8 & this.f) g3(this);
  } finally {
    t3();
  }
}
function m3(i4, t4) {
  this.x = i4;
  this.j = void 0;
  this.s = void 0;
  this.u = void 0;
  this.f = 32;
  this.name = null == t4 ? void 0 : t4.name;
  if (n2) n2.push(this);
}
m3.prototype.c = function() {
  var i4 = this.S();
  try {
    if (8 & this.f) return;
    if (void 0 === this.x) return;
    var t4 = this.x();
    if ("function" == typeof t4) this.j = t4;
  } finally {
    i4();
  }
};
m3.prototype.S = function() {
  if (1 & this.f) throw new Error("Cycle detected");
  this.f |= 1;
  this.f &= -9;
  p3(this);
  b(this);
  v3++;
  var i4 = o3;
  o3 = this;
  return S2.bind(this, i4);
};
m3.prototype.N = function() {
  if (!(2 & this.f)) {
    this.f |= 2;
    this.u = h3;
    h3 = this;
  }
};
m3.prototype.d = function() {
  this.f |= 8;
  if (!(1 & this.f)) g3(this);
};
m3.prototype.dispose = function() {
  this.d();
};
function x2(i4, t4) {
  var r4 = new m3(i4, t4);
  try {
    r4.c();
  } catch (i5) {
    r4.d();
    throw i5;
  }
  var n3 = r4.d.bind(r4);
  n3[Symbol.dispose] = n3;
  return n3;
}

// node_modules/@preact/signals/dist/signals.module.js
var h4;
var d3;
var p4;
var m4 = "undefined" != typeof window && !!window.__PREACT_SIGNALS_DEVTOOLS__;
var _3 = [];
var g4 = [];
x2(function() {
  h4 = this.N;
})();
function b2(i4, n3) {
  n[i4] = n3.bind(null, n[i4] || function() {
  });
}
function y4(i4) {
  if (p4) {
    var n3 = p4;
    p4 = void 0;
    n3();
  }
  p4 = i4 && i4.S();
}
function w4(i4) {
  var n3 = this, r4 = i4.data, t4 = useSignal(r4);
  t4.name = "ReactiveDom";
  t4.value = r4;
  var e4 = w2(function() {
    var i5 = n3, r5 = n3.__v;
    while (r5 = r5.__) if (r5.__c) {
      r5.__c.__$f |= 4;
      break;
    }
    var o5 = O(function() {
      var i6 = t4.value.value;
      return 0 === i6 ? 0 : true === i6 ? "" : i6 || "";
    }), e5 = O(function() {
      return !Array.isArray(o5.value) && !r(o5.value);
    }), u5 = x2(function() {
      this.N = M;
      if (e5.value) {
        var n4 = o5.value;
        if (i5.__v && i5.__v.__e && 3 === i5.__v.__e.nodeType) i5.__v.__e.data = n4;
      }
    }), c5 = n3.__$u.d;
    n3.__$u.d = function() {
      u5();
      c5.call(this);
    };
    return [e5, o5];
  }, []), u4 = e4[0], c4 = e4[1];
  return u4.value ? c4.peek() : c4.value;
}
w4.displayName = "ReactiveTextNode";
Object.defineProperties(l3.prototype, { constructor: { configurable: true, value: k($, null).constructor }, type: { configurable: true, value: w4 }, props: { configurable: true, get: function() {
  var i4 = this;
  return { data: { get value() {
    return i4.value;
  } } };
} }, __b: { configurable: true, value: 1 } });
b2("__b", function(i4, n3) {
  y4();
  d3 = void 0;
  if ("string" == typeof n3.type) {
    var r4, t4 = n3.props;
    for (var f5 in t4) if ("children" !== f5) {
      var o5 = t4[f5];
      if (o5 instanceof l3) {
        if (!r4) n3.__np = r4 = {};
        r4[f5] = o5;
        t4[f5] = o5.peek();
      }
    }
  }
  i4(n3);
});
b2("__r", function(i4, r4) {
  i4(r4);
  if (r4.type !== $) {
    y4();
    var t4, f5 = r4.__c;
    if (f5) {
      f5.__$f &= -2;
      if (void 0 === (t4 = f5.__$u)) f5.__$u = t4 = (function(i5, n3) {
        var r5;
        x2(function() {
          r5 = this;
        }, { name: n3 });
        r5.c = i5;
        return r5;
      })(/* @__PURE__ */ (function(i5) {
        return function() {
          var n3;
          if (m4) null == (n3 = this.y) || n3.call(this);
          i5.__$f |= 1;
          i5.setState({});
        };
      })(f5), "function" == typeof r4.type ? r4.type.displayName || r4.type.name : "");
    }
    d3 = f5;
    y4(t4);
  }
});
b2("__e", function(i4, n3, r4, t4) {
  y4();
  d3 = void 0;
  i4(n3, r4, t4);
});
b2("diffed", function(i4, n3) {
  y4();
  d3 = void 0;
  var r4;
  if ("string" == typeof n3.type && (r4 = n3.__e)) {
    var t4 = n3.__np, f5 = n3.props, o5 = r4.U;
    if (o5) for (var e4 in o5) {
      var u4 = o5[e4];
      if (!(void 0 === u4 || t4 && e4 in t4)) {
        u4.d();
        o5[e4] = void 0;
      }
    }
    if (t4) {
      if (!o5) {
        o5 = {};
        r4.U = o5;
      }
      for (var a5 in t4) {
        var c4 = o5[a5], v4 = t4[a5];
        if (void 0 === c4) {
          c4 = k3(r4, a5, v4, f5);
          o5[a5] = c4;
        } else c4.o(v4, f5);
      }
    }
  }
  i4(n3);
});
function k3(i4, n3, r4, t4) {
  var f5 = n3 in i4 && void 0 === i4.ownerSVGElement, o5 = y3(r4);
  return { o: function(i5, n4) {
    o5.value = i5;
    t4 = n4;
  }, d: x2(function() {
    this.N = M;
    var r5 = o5.value.value;
    if (t4[n3] !== r5) {
      t4[n3] = r5;
      if (f5) i4[n3] = r5;
      else if (null != r5 && (false !== r5 || "-" === n3[4])) i4.setAttribute(n3, r5);
      else i4.removeAttribute(n3);
    }
  }) };
}
b2("unmount", function(i4, n3) {
  if ("string" == typeof n3.type) {
    var r4 = n3.__e;
    if (r4) {
      var t4 = r4.U;
      if (t4) {
        r4.U = void 0;
        for (var f5 in t4) {
          var o5 = t4[f5];
          if (o5) o5.d();
        }
      }
    }
    var e4 = n3.__np;
    if (e4) {
      var u4 = n3.props;
      for (var a5 in e4) u4[a5] = e4[a5];
    }
    n3.__np = void 0;
  } else {
    var c4 = n3.__c;
    if (c4) {
      c4.__$f |= 8;
      var v4 = c4.__$u;
      if (v4) {
        c4.__$u = void 0;
        v4.d();
      }
    }
  }
  i4(n3);
});
b2("__h", function(i4, n3, r4, t4) {
  if (t4 < 3) n3.__$f |= 2;
  i4(n3, r4, t4);
});
x.prototype.shouldComponentUpdate = function(i4, n3) {
  if (this.__R) return true;
  var r4 = this.__$u, t4 = r4 && void 0 !== r4.s;
  for (var f5 in n3) return true;
  if (this.__f || "boolean" == typeof this.u && true === this.u) {
    var o5 = 2 & this.__$f;
    if (!(t4 || o5 || 4 & this.__$f)) return true;
    if (1 & this.__$f) return true;
  } else {
    if (!(t4 || 4 & this.__$f)) return true;
    if (3 & this.__$f) return true;
  }
  for (var e4 in i4) if ("__source" !== e4 && i4[e4] !== this.props[e4]) return true;
  for (var u4 in this.props) if (!(u4 in i4)) return true;
  return false;
};
function useSignal(i4, n3) {
  return w2(function() {
    return y3(i4, n3);
  }, []);
}
function useComputed(i4, n3) {
  var r4 = T2(i4);
  r4.current = i4;
  d3.__$f |= 4;
  return w2(function() {
    return O(function() {
      return r4.current();
    }, n3);
  }, []);
}
var q2 = "undefined" == typeof requestAnimationFrame ? setTimeout : function(i4) {
  var n3 = function() {
    clearTimeout(r4);
    cancelAnimationFrame(t4);
    i4();
  }, r4 = setTimeout(n3, 35), t4 = requestAnimationFrame(n3);
};
var A3 = function(i4) {
  queueMicrotask(function() {
    queueMicrotask(i4);
  });
};
function T4() {
  r3(function() {
    var i4;
    while (i4 = _3.shift()) h4.call(i4);
  });
}
function x3() {
  if (1 === _3.push(this)) (n.requestAnimationFrame || q2)(T4);
}
function F2() {
  r3(function() {
    var i4;
    while (i4 = g4.shift()) h4.call(i4);
  });
}
function M() {
  if (1 === g4.push(this)) (n.requestAnimationFrame || A3)(F2);
}
function useSignalEffect(i4, n3) {
  var r4 = T2(i4);
  r4.current = i4;
  var t4 = d3;
  A2(function() {
    return x2(function() {
      this.N = x3;
      if (!(t4 && 8 & t4.__$f)) return r4.current();
    }, n3);
  }, []);
}

// src/data/cache.ts
var Cache = class {
  constructor(maxBytes, dropped = () => void 0) {
    this.maxBytes = maxBytes;
    this.dropped = dropped;
  }
  maxBytes;
  dropped;
  /** In the order of the last use, oldest first. */
  #entries = /* @__PURE__ */ new Map();
  #bytes = 0;
  get bytes() {
    return this.#bytes;
  }
  get(key) {
    const entry = this.#entries.get(key);
    if (entry === void 0) return void 0;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }
  set(key, value, bytes) {
    this.delete(key);
    this.#entries.set(key, { value, bytes });
    this.#bytes += bytes;
    for (const [oldest, entry] of this.#entries) {
      if (this.#bytes <= this.maxBytes || oldest === key) break;
      this.delete(oldest);
      this.dropped(entry.value);
    }
  }
  /** Record the size of what has arrived meanwhile. */
  resize(key, bytes) {
    const entry = this.#entries.get(key);
    if (entry !== void 0) this.set(key, entry.value, bytes);
  }
  delete(key) {
    const entry = this.#entries.get(key);
    if (entry === void 0) return;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes;
  }
  entries() {
    return [...this.#entries].map(([key, { value }]) => [key, value]);
  }
};

// src/data/maps.ts
var ALL_HEADS = -1;
function readLayer(item) {
  const { data } = item.attention;
  return { heads: headsOf(item), size: item.keys.length, weights: data };
}
function readRows(item) {
  const { data } = item.attention;
  const heads = headsOf(item);
  return { heads, size: data.length / heads.length, weights: data };
}
function rowOf({ heads, size: size2, weights }, head, index, direction) {
  const start = slot(heads, head) * size2 ** 2;
  if (direction === "from") return weights.subarray(start + index * size2, start + (index + 1) * size2);
  const column = new Float32Array(size2);
  for (let query = 0; query < size2; query++) column[query] = weights[start + query * size2 + index];
  return column;
}
function mapOf({ heads, size: size2, weights }, head) {
  const start = slot(heads, head) * size2 ** 2;
  return weights.subarray(start, start + size2 ** 2);
}
function rowAmong({ heads, size: size2, weights }, head) {
  const start = slot(heads, head) * size2;
  return weights.subarray(start, start + size2);
}
function slot(heads, head) {
  if (heads[0] === ALL_HEADS) return 0;
  const index = heads.indexOf(head);
  if (index < 0) throw new RangeError(`Head ${head} is not among those loaded: ${heads.join(", ")}.`);
  return index;
}
function headsOf({ axes, heads }) {
  return axes.includes("head") ? heads : [ALL_HEADS];
}

// src/data/overview.ts
function readOverview(subject, answer, ms) {
  const item = answer.items[0];
  const units = unitsOf(item, subject);
  const kept = units.filter(({ special }) => subject.special === "keep" || !special);
  return {
    subject,
    units,
    kept,
    indexOf: new Map(kept.map(({ position }, index) => [position, index])),
    summary: item.summary,
    thumbnails: item.thumbnails,
    layers: subject.model.layers,
    heads: subject.model.heads,
    tokens: item.tokens.length,
    truncated: item.truncated,
    originalLength: item.original_length,
    ms
  };
}
function unitsOf(item, { text: text2, pair }) {
  const texts2 = [Array.from(text2), Array.from(pair ?? "")];
  const firsts = item.words === null ? item.tokens.map((_4, i4) => i4) : wordStarts(item);
  const spans = item.words === null ? item.offsets : item.word_offsets;
  const ends = [0, 0];
  return firsts.map((first, position) => {
    const segment = item.segment_ids[first];
    const [start, end] = spans[position];
    const token = item.words?.[position] ?? item.tokens[first];
    const own = end > start && item.word_ids[first] !== null;
    const before = own ? texts2[segment].slice(ends[segment], start).join("") : "";
    const repeats = own && start < ends[segment];
    if (own) ends[segment] = end;
    return {
      position,
      token,
      label: own && !repeats ? texts2[segment].slice(start, end).join("") : bare(token),
      spaced: /\s/.test(before) || !own,
      broken: before.includes("\n"),
      segment,
      special: item.special[first]
    };
  });
}
function wordStarts({ word_ids, segment_ids }) {
  const starts = [];
  word_ids.forEach((word, i4) => {
    const same = i4 > 0 && word !== null && word === word_ids[i4 - 1] && segment_ids[i4] === segment_ids[i4 - 1];
    if (!same) starts.push(i4);
  });
  return starts;
}
function bare(token) {
  return token.replace(/^(?:##|[▁Ġ])(?=.)/u, "");
}

// src/data/requests.ts
var LARGEST_WHOLE = 1024;
var THUMBNAIL = 64;
function keyOf({ model, ...rest }) {
  return JSON.stringify([model.name, rest.text, rest.pair, rest.prompt, rest.weights, rest.level, rest.special]);
}
function inputsOf({ text: text2, pair }) {
  return pair === null ? text2 : [[text2, pair]];
}
function textFields({ model, prompt }) {
  const named2 = prompt === null ? {} : prompt === "" ? { prompt: "" } : { prompt_name: prompt };
  return { model: model.name, ...named2 };
}
function weightFields({ weights, level, special }) {
  return {
    ...weights === "rollout" ? { aggregate: "rollout" } : weights === "probability" ? {} : { weights },
    ...level === "word" ? { level } : {},
    ...special === "keep" ? {} : { special_tokens: "drop" },
    ...isRenormalized({ weights, special }) ? { renormalize: true } : {}
  };
}
function isRenormalized({ weights, special }) {
  return special === "renormalize" && weights !== "score";
}
function overviewFields(subject, thumbnails2) {
  const weights = subject.weights === "rollout" ? "probability" : subject.weights;
  const common = { ...textFields(subject), ...weightFields({ ...subject, weights }), summary: true };
  if (thumbnails2) return { ...common, thumbnail: THUMBNAIL, dtype: "float16" };
  const { weights: _4, ...statistics } = common;
  return { ...statistics, maps: false };
}
function layerFields(subject, layer) {
  return { ...textFields(subject), ...weightFields(subject), layers: [layer], dtype: "float16" };
}
function rowFields(subject, layer, position, direction) {
  const chosen = direction === "from" ? { queries: [position] } : { keys: [position] };
  return { ...layerFields(subject, layer), ...chosen };
}
function fitsWhole(tokens2, heads, maxResponseBytes) {
  return tokens2 <= LARGEST_WHOLE && 2 * heads * tokens2 ** 2 < 0.9 * maxResponseBytes;
}
function isSurelyShort({ model, text: text2, pair }) {
  if (model.max_length <= LARGEST_WHOLE) return true;
  const special = 8;
  return new TextEncoder().encode(text2 + (pair ?? "")).length + special <= LARGEST_WHOLE;
}

// src/data/loader.ts
var CACHE_BYTES = 256 << 20;
var ENTRY_BYTES = 4096;
var UNAUTHORIZED2 = 401;
var LOADING = { state: "loading" };
var Loader = class {
  constructor(source, keyRefused = () => void 0) {
    this.source = source;
    this.keyRefused = keyRefused;
  }
  source;
  keyRefused;
  last = y3(null);
  /** Requests in flight. */
  waiting = y3(0);
  #cache = new Cache(CACHE_BYTES, ({ controller }) => controller.abort());
  /** Tokens, statistics and thumbnails. */
  overview(subject) {
    return this.#load(subject, "overview", async (signal) => {
      const began = performance.now();
      const short = isSurelyShort(subject) || await this.#isShort(subject, signal);
      const answer = await this.#ask(subject, overviewFields(subject, short), signal);
      const overview = readOverview(subject, answer, performance.now() - began);
      return [overview, overview.thumbnails?.data.byteLength ?? 0];
    });
  }
  /** All maps of a layer; for inputs of at most LARGEST_WHOLE tokens. */
  layer(subject, layer) {
    return this.#load(subject, `layer ${layer}`, async (signal) => {
      const answer = await this.#ask(subject, layerFields(subject, layer), signal);
      const maps3 = readLayer(answer.items[0]);
      return [maps3, maps3.weights.byteLength];
    });
  }
  /** One row of each head of a layer, or one column. */
  row(subject, layer, position, direction) {
    return this.#load(subject, `${direction} ${position} of ${layer}`, async (signal) => {
      const fields = rowFields(subject, layer, position, direction);
      const rows = readRows((await this.#ask(subject, fields, signal)).items[0]);
      return [rows, rows.weights.byteLength];
    });
  }
  /** Any other part of the maps, by the fields that ask for it, as the client reads it. */
  part(subject, fields) {
    return this.#load(subject, `part ${JSON.stringify(fields)}`, async (signal) => {
      const all = { ...textFields(subject), ...weightFields(subject), ...fields };
      const item = (await this.#ask(subject, all, signal)).items[0];
      return [item, item.attention?.data.byteLength ?? 0];
    });
  }
  /** Cancel what is in flight for other subjects than these. */
  keepOnly(subjects) {
    const kept = new Set(subjects.map(keyOf));
    for (const [key, { subject, loaded, controller }] of this.#cache.entries()) {
      if (kept.has(subject) || loaded.peek().state !== "loading") continue;
      controller.abort();
      this.#cache.delete(key);
    }
  }
  /** Ask again for what failed, once a view wants it. */
  forgetFailures() {
    for (const [key, { loaded }] of this.#cache.entries()) {
      if (loaded.peek().state !== "failed") continue;
      this.#cache.delete(key);
      this.generation.value += 1;
    }
  }
  /** Counts how often failures were forgotten: reading it runs what asked for them again. */
  generation = y3(0);
  #load(subject, what, fetch2) {
    this.generation.value;
    const own = keyOf(subject);
    const key = `${own} ${what}`;
    const known = this.#cache.get(key);
    if (known !== void 0) return known.loaded;
    const entry = { loaded: y3(LOADING), controller: new AbortController(), subject: own };
    this.#cache.set(key, entry, ENTRY_BYTES);
    void this.#run(key, entry, fetch2);
    return entry.loaded;
  }
  async #run(key, { loaded, controller: { signal } }, fetch2) {
    await Promise.resolve();
    this.waiting.value += 1;
    try {
      const [value, bytes] = await fetch2(signal);
      this.#cache.resize(key, ENTRY_BYTES + bytes);
      loaded.value = { state: "ready", value };
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === UNAUTHORIZED2) this.keyRefused();
      loaded.value = { state: "failed", error };
    } finally {
      this.waiting.value -= 1;
    }
  }
  async #ask(subject, fields, signal) {
    const began = performance.now();
    const answer = await this.source.attention(inputsOf(subject), { ...fields, signal });
    this.last.value = { ms: performance.now() - began, tokens: answer.usage.input_tokens };
    return answer;
  }
  async #isShort(subject, signal) {
    const answer = await this.source.tokenize(inputsOf(subject), {
      ...textFields(subject),
      signal
    });
    return answer.items[0].tokens.length <= LARGEST_WHOLE;
  }
};

// src/state/fields.ts
var TEXT_CHARACTERS = 1e6;
var NAME_CHARACTERS = 500;
var LARGEST_INDEX = 99999;
var LONGEST_LIST = 2e3;
var WEIGHTS = ["probability", "value_norm", "score", "rollout"];
var LEVELS = ["token", "word"];
var SPECIAL = ["keep", "drop", "renormalize"];
var DIRECTIONS = ["from", "to"];
var COLOURS = ["auto", "viridis", "cividis", "magma"];
var SCALES = ["linear", "sqrt", "log"];
var THEMES = ["auto", "light", "dark"];
var FIELDS = {
  text: text(TEXT_CHARACTERS, ""),
  /** The second text of a pair. */
  pair: optional(TEXT_CHARACTERS),
  /** The name of a served model; null is the first that shows its attention. */
  model: optional(NAME_CHARACTERS),
  /** The name of a prompt; null is the model's default, and "" is none. */
  prompt: optional(NAME_CHARACTERS),
  /** The chosen heads, the current one last; none chosen is the first head of the middle layer. */
  heads: list(headId),
  /** Positions of the pinned tokens, or words, in the whole input. */
  pinned: list((value) => whole(value, LARGEST_INDEX)),
  view: text(NAME_CHARACTERS, "text"),
  weights: oneOf(WEIGHTS),
  level: oneOf(LEVELS),
  /** Special tokens stay, are dropped, or are dropped and the rows sum to 1 again. */
  special: oneOf(SPECIAL),
  /** Whether a pinned token shows where it looks, or what looks at it. */
  direction: oneOf(DIRECTIONS),
  /** What cells of the grid show: thumbnails, or a statistic. */
  cells: text(NAME_CHARACTERS, "maps"),
  /** The statistic that orders the table, after "-" the largest first; none is layer by layer. */
  sort: text(NAME_CHARACTERS, ""),
  colours: oneOf(COLOURS),
  scale: oneOf(SCALES, "sqrt"),
  theme: oneOf(THEMES)
};
function initialState() {
  return Object.fromEntries(Object.entries(FIELDS).map(([name, { initial }]) => [name, initial]));
}
function parseState(value) {
  const given = typeof value === "object" && value !== null ? value : {};
  const read = Object.entries(FIELDS).map(([name, field]) => {
    const own = Object.hasOwn(given, name) ? field.parse(given[name]) : void 0;
    return [name, own ?? field.initial];
  });
  return Object.fromEntries(read);
}
function changedFields(state) {
  const changed = Object.entries(state).filter(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(FIELDS[name].initial)
  );
  return Object.fromEntries(changed);
}
function text(characters, initial) {
  return { initial, parse: (value) => shortText(value, characters) };
}
function optional(characters) {
  return { initial: null, parse: (value) => value === null ? void 0 : shortText(value, characters) };
}
function oneOf(values, initial = values[0]) {
  return { initial, parse: (value) => values.find((one) => one === value) };
}
function list(item) {
  return {
    initial: [],
    parse: (value) => {
      if (!Array.isArray(value) || value.length > LONGEST_LIST) return void 0;
      const items = value.map(item).filter((one) => one !== void 0);
      return items.length === value.length ? items : void 0;
    }
  };
}
function whole(value, most) {
  return Number.isInteger(value) && value >= 0 && value <= most ? value : void 0;
}
function headId(value) {
  if (!Array.isArray(value) || value.length !== 2) return void 0;
  const [layer, head] = value.map((one) => whole(one, LARGEST_INDEX));
  return layer === void 0 || head === void 0 ? void 0 : [layer, head];
}
function shortText(value, characters) {
  if (typeof value !== "string" || value.length > characters) return void 0;
  return new RegExp("\\p{Surrogate}", "u").test(value) ? void 0 : value;
}

// src/state/store.ts
var Store = class {
  constructor(source, initial) {
    this.source = source;
    this.loader = new Loader(source, this.#keyRefused);
    const signals = Object.keys(FIELDS).map((name) => [name, y3(initial[name])]);
    this.fields = Object.fromEntries(signals);
    this.state = O(() => {
      const values = Object.entries(this.fields).map(([name, { value }]) => [name, value]);
      return Object.fromEntries(values);
    });
  }
  source;
  /** A signal for each field of a link. */
  fields;
  state;
  loader;
  info = y3(null);
  /** Why `/info` could not be read. */
  infoError = y3(null);
  /** The position of the token under the pointer or with the focus; null for none. */
  hovered = y3(null);
  /** Spoken by screen readers. */
  spoken = y3("");
  systemDark = y3(false);
  /** Whether the service wants a key. */
  needsKey = y3(false);
  #keyRefused = () => {
    this.needsKey.value = true;
  };
  dark = O(() => {
    const theme = this.fields.theme.value;
    return theme === "auto" ? this.systemDark.value : theme === "dark";
  });
  /** The chosen model; null until `/info` is there, or if none shows its attention. */
  model = O(() => {
    const shown2 = this.models.value;
    const name = this.fields.model.value;
    return shown2.find((model) => model.name === name) ?? shown2[0] ?? null;
  });
  /** The models that show their attention. */
  models = O(() => (this.info.value?.models ?? []).filter(({ attention }) => attention));
  /** The chosen heads that the model has, the current one last: at least one. */
  heads = O(() => {
    const model = this.model.value;
    return model === null ? [[0, 0]] : this.headsOf(model);
  });
  current = O(() => this.heads.value.at(-1));
  /** What is looked at: null before a text is entered. */
  subject = O(() => {
    const { text: text2, pair, prompt, weights, level, special } = this.fields;
    const model = this.model.value;
    if (model === null || text2.value === "" && !pair.value) return null;
    return {
      model,
      text: text2.value,
      pair: pair.value,
      prompt: prompt.value,
      weights: weights.value,
      level: level.value,
      special: special.value
    };
  });
  overview = O(() => {
    const subject = this.subject.value;
    return subject === null ? null : this.loader.overview(subject).value;
  });
  /** The overview once it is there. */
  shown = O(() => {
    const overview = this.overview.value;
    return overview?.state === "ready" ? overview.value : null;
  });
  /** The pinned positions that the input has and that were not dropped. */
  pinned = O(() => {
    const kept = this.shown.value?.indexOf;
    return this.fields.pinned.value.filter((position) => kept?.has(position));
  });
  /** The chosen heads that a model has, the current one last: while another is loading, views still show the last. */
  headsOf({ layers, heads }) {
    const own = this.fields.heads.value.filter(([layer, head]) => layer < layers && head < heads);
    return own.length > 0 ? own : [[Math.floor(layers / 2), 0]];
  }
  /** Read `/info`; a failure is in `infoError`. */
  async readInfo() {
    try {
      this.info.value = await this.source.info();
      this.infoError.value = null;
    } catch (error) {
      this.infoError.value = error;
      if (error.status === 401) this.#keyRefused();
    }
  }
  /** Go on with a key after a refusal. */
  async useKey(key) {
    this.source.useKey?.(key);
    this.needsKey.value = false;
    this.loader.forgetFailures();
    if (this.info.value === null) await this.readInfo();
  }
  /** Take over a whole state, as from a link. */
  restore(state) {
    r3(() => {
      for (const [name, value] of Object.entries(state)) {
        const field = this.fields[name];
        if (JSON.stringify(field.peek()) !== JSON.stringify(value)) field.value = value;
      }
    });
  }
  /** Look at another text: pins belong to the last one. */
  enter(entered, second) {
    const text2 = whole2(entered);
    const pair = second === null ? null : whole2(second);
    r3(() => {
      if (text2 !== this.fields.text.value || pair !== this.fields.pair.value) this.fields.pinned.value = [];
      this.fields.text.value = text2;
      this.fields.pair.value = pair;
      this.loader.forgetFailures();
    });
  }
  /** Choose a level: positions count tokens or words, so that pins do not carry over. */
  setLevel(level) {
    r3(() => {
      this.fields.level.value = level;
      this.fields.pinned.value = [];
    });
  }
  /** Make a head the current one. One of several that are chosen leaves the others so. */
  openHead(id) {
    const chosen = this.heads.value;
    const others = chosen.filter((other) => !sameHead(other, id));
    this.fields.heads.value = others.length < chosen.length ? [...others, id] : [id];
  }
  /** Add a head to the chosen ones, or take it away; the last one stays. */
  toggleHead(id) {
    const chosen = this.heads.value;
    const others = chosen.filter((other) => !sameHead(other, id));
    if (others.length === chosen.length) this.fields.heads.value = [...chosen, id];
    else if (others.length > 0) this.fields.heads.value = others;
  }
  chooseHeads(ids) {
    if (ids.length > 0) this.fields.heads.value = ids;
  }
  /** Step to another layer or head, and stop at the edges. */
  step(layers, heads) {
    const model = this.model.value;
    if (model === null) return;
    const [layer, head] = this.current.value;
    this.fields.heads.value = [[within(layer + layers, model.layers), within(head + heads, model.heads)]];
  }
  /** Pin a token alone, or with `add` beside others; once more takes the pin out. */
  pin(position, add2) {
    const pinned = this.pinned.value;
    const others = pinned.filter((other) => other !== position);
    const was = others.length < pinned.length;
    this.fields.pinned.value = add2 ? was ? others : [...pinned, position] : was && pinned.length === 1 ? [] : [position];
  }
};
function sameHead(a5, b3) {
  return a5[0] === b3[0] && a5[1] === b3[1];
}
function headName([layer, head]) {
  return `L${layer} H${head}`;
}
function whole2(text2) {
  return text2.replace(new RegExp("\\p{Surrogate}", "gu"), "�");
}
function within(index, count) {
  return Math.min(Math.max(index, 0), count - 1);
}

// src/layout/context.ts
var StoreContext = U(null);
function useStore() {
  const store = j2(StoreContext);
  if (store === null) throw new Error("A component that reads the store stands outside of mount().");
  return store;
}

// node_modules/preact/jsx-runtime/dist/jsxRuntime.mjs
var f4 = /* @__PURE__ */ Symbol.for("pv");
var o4 = 0;
function a4(t4, e4, n3, u4, a5, i4) {
  e4 || (e4 = {});
  var c4, l4, p5 = e4;
  if ("ref" in p5 && "function" != typeof t4) for (l4 in p5 = {}, e4) "ref" == l4 ? c4 = e4[l4] : p5[l4] = e4[l4];
  var s4 = { type: t4, props: p5, key: n3, ref: c4, __k: null, __: null, __b: 0, __e: null, __c: null, constructor: f4, __v: --o4, __i: -1, __u: 0 };
  return (a5 || i4) && (s4.__source = a5, s4.__self = i4), n.vnode && n.vnode(s4), s4;
}

// src/layout/Controls.tsx
var WIDE = "(min-width: 40rem)";
function Controls() {
  const store = useStore();
  const { fields } = store;
  const wide = w2(() => matchMedia(WIDE).matches, []);
  const rollout = fields.weights.value === "rollout";
  return /* @__PURE__ */ a4("section", { class: "controls", "aria-label": "Controls", children: [
    /* @__PURE__ */ a4(HeadSteps, {}),
    /* @__PURE__ */ a4("details", { class: "choices", open: wide, children: [
      /* @__PURE__ */ a4("summary", { children: "Weights, level and colours" }),
      /* @__PURE__ */ a4("div", { children: [
        /* @__PURE__ */ a4(
          Choice,
          {
            label: "Weights",
            of: fields.weights,
            names: { probability: "probability", value_norm: "norm of values", score: "score", rollout: "rollout" }
          }
        ),
        /* @__PURE__ */ a4(
          Choice,
          {
            label: "Level",
            of: fields.level,
            names: { token: "tokens", word: "words" },
            change: (level) => store.setLevel(level)
          }
        ),
        /* @__PURE__ */ a4(
          Choice,
          {
            label: "Special tokens",
            of: fields.special,
            names: { keep: "keep", drop: "drop", renormalize: "drop, renormalise" }
          }
        ),
        /* @__PURE__ */ a4(
          Choice,
          {
            label: "Colours",
            of: fields.colours,
            names: { auto: "automatic", viridis: "viridis", cividis: "cividis", magma: "magma" }
          }
        ),
        /* @__PURE__ */ a4(
          Choice,
          {
            label: "Scale",
            of: fields.scale,
            names: { linear: "linear", sqrt: "square root", log: "logarithmic" }
          }
        )
      ] })
    ] }),
    rollout && /* @__PURE__ */ a4("p", { class: "note", children: [
      "Rollout follows all heads through layers 0 to ",
      store.current.value[0],
      "."
    ] })
  ] });
}
function Choice({ label, of, names, change }) {
  return /* @__PURE__ */ a4("label", { children: [
    /* @__PURE__ */ a4("span", { children: label }),
    /* @__PURE__ */ a4(
      "select",
      {
        value: of.value,
        onChange: ({ currentTarget }) => {
          const value = currentTarget.value;
          if (change === void 0) of.value = value;
          else change(value);
        },
        children: Object.entries(names).map(([value, name]) => /* @__PURE__ */ a4("option", { value, children: name }, value))
      }
    )
  ] });
}
function HeadSteps() {
  const store = useStore();
  const model = store.model.value;
  const [layer, head] = store.current.value;
  const others = store.heads.value.slice(0, -1);
  return /* @__PURE__ */ a4("div", { class: "steps", children: [
    /* @__PURE__ */ a4(
      Step,
      {
        name: "Layer",
        index: layer,
        count: model?.layers ?? 0,
        step: (by) => store.step(by, 0),
        keys: ["[", "]"]
      }
    ),
    /* @__PURE__ */ a4(Step, { name: "Head", index: head, count: model?.heads ?? 0, step: (by) => store.step(0, by), keys: [",", "."] }),
    others.length > 0 && /* @__PURE__ */ a4("span", { class: "chips", children: [
      /* @__PURE__ */ a4("span", { class: "note", children: "and" }),
      others.slice(0, 6).map((id) => /* @__PURE__ */ a4(
        "button",
        {
          type: "button",
          class: "chip",
          title: `Take ${headName(id)} out`,
          "aria-label": `Take ${headName(id)} out`,
          onClick: () => store.chooseHeads(store.heads.value.filter((other) => !sameHead(other, id))),
          children: [
            headName(id),
            " ×"
          ]
        },
        headName(id)
      )),
      others.length > 6 && /* @__PURE__ */ a4("span", { class: "note", children: [
        "and ",
        others.length - 6,
        " more"
      ] }),
      /* @__PURE__ */ a4("button", { type: "button", class: "chip", onClick: () => store.chooseHeads([store.current.value]), children: [
        "only ",
        headName([layer, head])
      ] })
    ] })
  ] });
}
function Step({ name, index, count, step, keys }) {
  const low = name.toLowerCase();
  return /* @__PURE__ */ a4("fieldset", { class: "step", children: [
    /* @__PURE__ */ a4("legend", { children: name }),
    /* @__PURE__ */ a4(
      "button",
      {
        type: "button",
        disabled: index <= 0,
        onClick: () => step(-1),
        "aria-label": `Previous ${low}`,
        title: `Previous ${low} (${keys[0]})`,
        children: "‹"
      }
    ),
    /* @__PURE__ */ a4("output", { children: index }),
    /* @__PURE__ */ a4(
      "button",
      {
        type: "button",
        disabled: index >= count - 1,
        onClick: () => step(1),
        "aria-label": `Next ${low}`,
        title: `Next ${low} (${keys[1]})`,
        children: "›"
      }
    )
  ] });
}

// src/drawing/numbers.ts
function weightText(weight) {
  const size2 = Math.abs(weight);
  if (!Number.isFinite(weight)) return "–";
  if (size2 === 0) return "0";
  if (size2 < 5e-6) return "≈0";
  if (size2 < 0.01) return weight.toFixed(5);
  return size2 < 10 ? weight.toFixed(3) : weight.toFixed(1);
}
function timeText(ms) {
  return ms < 1e3 ? `${Math.round(ms)} ms` : `${(ms / 1e3).toFixed(1)} s`;
}
function countText(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}
function largest(numbers2, count) {
  const order = Array.from(numbers2, (_4, i4) => i4);
  order.sort((a5, b3) => numbers2[b3] - numbers2[a5] || a5 - b3);
  return order.slice(0, count);
}

// src/layout/Footer.tsx
function Footer() {
  const { loader } = useStore();
  const last = loader.last.value;
  return /* @__PURE__ */ a4("footer", { class: "footer", children: [
    /* @__PURE__ */ a4("p", { children: [
      /* @__PURE__ */ a4("strong", { children: "Attention is not an explanation" }),
      " (Jain & Wallace 2019,",
      " ",
      /* @__PURE__ */ a4("a", { href: "https://arxiv.org/abs/1902.10186", rel: "noreferrer", target: "_blank", children: "arXiv:1902.10186" }),
      "): it shows what a head mixes, not why the model answers as it does."
    ] }),
    /* @__PURE__ */ a4("p", { class: "timing", children: loader.waiting.value > 0 ? "Loading…" : last !== null && `${countText(last.tokens, "token")}, ${timeText(last.ms)}` })
  ] });
}

// src/layout/Help.tsx
var KEYS = [
  ["← →", "the token before or after, in a list of tokens; in the grid also ↑ ↓"],
  ["Enter, Space", "pin a token, or open a head; with Shift beside the others"],
  ["[ ]", "the layer before or after"],
  [", .", "the head before or after"],
  ["/", "find a token"],
  ["Esc", "take out all pins"],
  ["?", "this page"]
];
function openHelp() {
  document.querySelector("dialog.help")?.showModal();
}
function Help() {
  return /* @__PURE__ */ a4("dialog", { class: "help", "aria-labelledby": "help-title", children: [
    /* @__PURE__ */ a4("h2", { id: "help-title", children: "Help" }),
    /* @__PURE__ */ a4("p", { children: "Pin a token to see where it looks, or what looks at it. Shift adds further tokens, whose weights are summed. Several heads are shown by their mean. A head or a token that is chosen in one view is chosen in all." }),
    /* @__PURE__ */ a4("dl", { children: KEYS.map(([keys, told2]) => /* @__PURE__ */ a4("div", { children: [
      /* @__PURE__ */ a4("dt", { children: /* @__PURE__ */ a4("kbd", { children: keys }) }),
      /* @__PURE__ */ a4("dd", { children: told2 })
    ] }, keys)) }),
    /* @__PURE__ */ a4("p", { children: "The address of this page holds all that you chose, the texts too: it can be sent to others. Browsers do not send that part of it to any server." }),
    /* @__PURE__ */ a4("form", { method: "dialog", children: /* @__PURE__ */ a4("button", { type: "submit", class: "main", children: "Close" }) })
  ] });
}

// src/layout/Header.tsx
function Header() {
  const store = useStore();
  const { fields } = store;
  const model = store.model.value;
  return /* @__PURE__ */ a4("header", { class: "header", children: [
    /* @__PURE__ */ a4("h1", { children: [
      "headlight ",
      /* @__PURE__ */ a4("span", { children: "explorer" })
    ] }),
    /* @__PURE__ */ a4("div", { class: "header-fields", children: [
      /* @__PURE__ */ a4("label", { children: [
        /* @__PURE__ */ a4("span", { children: "Model" }),
        /* @__PURE__ */ a4(
          "select",
          {
            value: model?.name ?? "",
            disabled: model === null,
            onChange: ({ currentTarget }) => {
              fields.model.value = currentTarget.value;
              fields.prompt.value = null;
            },
            children: store.models.value.map(({ name }) => /* @__PURE__ */ a4("option", { value: name, children: name }, name))
          }
        )
      ] }),
      /* @__PURE__ */ a4(Prompt, {})
    ] }),
    /* @__PURE__ */ a4("div", { class: "header-buttons", children: [
      /* @__PURE__ */ a4(ThemeButton, {}),
      /* @__PURE__ */ a4("button", { type: "button", class: "quiet", onClick: openHelp, "aria-label": "Help and keys", title: "Help and keys (?)", children: "?" })
    ] })
  ] });
}
function Prompt() {
  const store = useStore();
  const model = store.model.value;
  const names = Object.keys(model?.prompts ?? {});
  if (model === null || names.length === 0) return null;
  const usual = model.default_prompt_name;
  const { prompt } = store.fields;
  return /* @__PURE__ */ a4("label", { children: [
    /* @__PURE__ */ a4("span", { children: "Prompt" }),
    /* @__PURE__ */ a4(
      "select",
      {
        value: prompt.value ?? usual ?? "",
        onChange: ({ currentTarget: { value } }) => {
          prompt.value = value === (usual ?? "") ? null : value;
        },
        children: [
          /* @__PURE__ */ a4("option", { value: "", children: "none" }),
          names.map((name) => /* @__PURE__ */ a4("option", { value: name, children: name }, name))
        ]
      }
    )
  ] });
}
var NEXT = { auto: "light", light: "dark", dark: "auto" };
var SIGNS = { auto: "◐", light: "☀", dark: "☾" };
function ThemeButton() {
  const { theme } = useStore().fields;
  const name = THEMES.includes(theme.value) ? theme.value : "auto";
  const told2 = name === "auto" ? "as the system" : name;
  return /* @__PURE__ */ a4(
    "button",
    {
      type: "button",
      class: "quiet",
      title: `Theme: ${told2}`,
      "aria-label": `Theme: ${told2}. Change to ${NEXT[name]}`,
      onClick: () => {
        theme.value = NEXT[name];
      },
      children: SIGNS[name]
    }
  );
}

// src/layout/examples.ts
var EXAMPLES = [
  {
    title: "What does “it” look at?",
    text: "The animal did not cross the street because it was too tired.",
    pair: null
  },
  {
    title: "One word, two meanings",
    text: "She sat on the bank of the river and counted what the bank had paid her.",
    pair: null
  },
  {
    title: "Words in pieces",
    text: "Transformers hallucinate antidisestablishmentarianism.",
    pair: null
  },
  {
    title: "A question and a passage",
    text: "Where do penguins live?",
    pair: "Most penguins live in the southern hemisphere, and only one species is found north of the equator."
  },
  {
    title: "A program",
    text: "def area(width, height):\n    return width * height\n\nprint(area(3, 4))",
    pair: null
  }
];

// src/layout/Inputs.tsx
function Inputs() {
  const store = useStore();
  const text2 = useSignal(store.fields.text.peek());
  const pair = useSignal(store.fields.pair.peek());
  useSignalEffect(() => {
    text2.value = store.fields.text.value;
    pair.value = store.fields.pair.value;
  });
  const enter = () => store.enter(text2.value, pair.value);
  return /* @__PURE__ */ a4(
    "form",
    {
      class: "inputs",
      onSubmit: (event) => {
        event.preventDefault();
        enter();
      },
      children: [
        /* @__PURE__ */ a4(
          Area,
          {
            label: pair.value === null ? "Text" : "First text",
            value: text2.value,
            change: (v4) => text2.value = v4,
            enter
          }
        ),
        pair.value !== null && /* @__PURE__ */ a4(Area, { label: "Second text", value: pair.value, change: (v4) => pair.value = v4, enter }),
        /* @__PURE__ */ a4("div", { class: "inputs-buttons", children: [
          /* @__PURE__ */ a4("button", { type: "submit", class: "main", disabled: store.model.value === null, children: "Show attention" }),
          /* @__PURE__ */ a4(
            "button",
            {
              type: "button",
              onClick: () => {
                pair.value = pair.value === null ? "" : null;
              },
              children: pair.value === null ? "Add a second text" : "Remove the second text"
            }
          ),
          /* @__PURE__ */ a4("label", { class: "example", children: [
            /* @__PURE__ */ a4("span", { class: "unseen", children: "Examples" }),
            /* @__PURE__ */ a4(
              "select",
              {
                value: "",
                onChange: ({ currentTarget }) => {
                  const example = EXAMPLES[Number(currentTarget.value)];
                  currentTarget.value = "";
                  if (example !== void 0) store.enter(example.text, example.pair);
                },
                children: [
                  /* @__PURE__ */ a4("option", { value: "", children: "Examples…" }),
                  EXAMPLES.map(({ title }, i4) => /* @__PURE__ */ a4("option", { value: i4, children: title }, title))
                ]
              }
            )
          ] })
        ] })
      ]
    }
  );
}
function Area(props) {
  const lines = Math.min(4, Math.max(2, props.value.split("\n").length, Math.ceil(props.value.length / 90)));
  return /* @__PURE__ */ a4("label", { class: "area", children: [
    /* @__PURE__ */ a4("span", { children: props.label }),
    /* @__PURE__ */ a4(
      "textarea",
      {
        rows: lines,
        value: props.value,
        placeholder: "Enter a text",
        spellcheck: false,
        onInput: ({ currentTarget }) => props.change(currentTarget.value),
        onKeyDown: (event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          props.enter();
        }
      }
    )
  ] });
}

// src/layout/KeyDialog.tsx
function KeyDialog() {
  const store = useStore();
  const dialog = T2(null);
  const key = useSignal("");
  useSignalEffect(() => {
    if (store.needsKey.value) dialog.current?.showModal();
    else dialog.current?.close();
  });
  return /* @__PURE__ */ a4("dialog", { class: "key", ref: dialog, "aria-labelledby": "key-title", onCancel: () => store.needsKey.value = false, children: /* @__PURE__ */ a4(
    "form",
    {
      onSubmit: (event) => {
        event.preventDefault();
        void store.useKey(key.value.trim());
        key.value = "";
      },
      children: [
        /* @__PURE__ */ a4("h2", { id: "key-title", children: "This service needs a key" }),
        /* @__PURE__ */ a4("label", { children: [
          /* @__PURE__ */ a4("span", { children: "API key" }),
          /* @__PURE__ */ a4(
            "input",
            {
              type: "password",
              autocomplete: "off",
              required: true,
              value: key.value,
              onInput: ({ currentTarget }) => key.value = currentTarget.value
            }
          )
        ] }),
        /* @__PURE__ */ a4("p", { class: "note", children: "It is kept until this tab is closed, and is sent to this service alone." }),
        /* @__PURE__ */ a4("button", { type: "submit", class: "main", children: "Use this key" })
      ]
    }
  ) });
}

// src/layout/keys.ts
function followKeys(store, root) {
  const press = (event) => {
    const target = event.target;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest("input, textarea, select, dialog[open]")) return;
    const act = actions(store, root)[event.key];
    if (act === void 0) return;
    event.preventDefault();
    act();
  };
  const listened = store.source.kind === "kernel" ? root : document;
  listened.addEventListener("keydown", press);
  return () => listened.removeEventListener("keydown", press);
}
function actions(store, root) {
  return {
    "[": () => store.step(-1, 0),
    "]": () => store.step(1, 0),
    ",": () => store.step(0, -1),
    ".": () => store.step(0, 1),
    "/": () => root.querySelector("input.find")?.focus(),
    "?": openHelp,
    Escape: () => {
      store.fields.pinned.value = [];
      store.hovered.value = null;
    }
  };
}

// src/layout/Problems.tsx
function Problems() {
  const store = useStore();
  const overview = store.overview.value;
  const error = store.infoError.value ?? (overview?.state === "failed" ? overview.error : null);
  if (error !== null && !store.needsKey.value) {
    return /* @__PURE__ */ a4("div", { class: "problem", role: "alert", children: [
      /* @__PURE__ */ a4("p", { children: sentence(error) }),
      /* @__PURE__ */ a4(
        "button",
        {
          type: "button",
          onClick: () => {
            store.loader.forgetFailures();
            if (store.infoError.value !== null) void store.readInfo();
          },
          children: "Try again"
        }
      )
    ] });
  }
  if (store.info.value !== null && store.model.value === null) {
    return /* @__PURE__ */ a4("p", { class: "problem", role: "alert", children: "None of the served models shows its attention: start the service with another model." });
  }
  return null;
}
function sentence(error) {
  const { detail } = error;
  return typeof detail === "string" && detail !== "" ? detail : error.message;
}

// src/drawing/statistics.ts
var STATISTICS = [
  { name: "entropy", title: "Entropy", told: "how widely a row is spread, in nats" },
  { name: "confidence", title: "Confidence", told: "the largest weight of a row" },
  { name: "mean_distance", title: "Distance", told: "how far away a row looks" },
  { name: "self", title: "Self", told: "weight on the token itself" },
  { name: "previous", title: "Previous", told: "weight on the token before" },
  { name: "next", title: "Next", told: "weight on the token after" },
  { name: "special", title: "Special", told: "weight on special tokens" },
  { name: "argmax_self", title: "Self first", told: "share of rows with the largest weight on the token itself" },
  {
    name: "argmax_previous",
    title: "Previous first",
    told: "share of rows with the largest weight on the token before"
  },
  { name: "argmax_next", title: "Next first", told: "share of rows with the largest weight on the token after" }
];
function statisticOf({ summary: summary2 }, name, [layer, head]) {
  return summary2[name]?.at(layer, head) ?? Number.NaN;
}
function limitOf(name, size2) {
  if (name === "entropy") return Math.log(Math.max(size2, 1));
  if (name === "mean_distance") return Math.max(size2 - 1, 0);
  return 1;
}
function allHeads({ layers, heads }) {
  return Array.from({ length: layers * heads }, (_4, i4) => [Math.floor(i4 / heads), i4 % heads]);
}
function headText(overview, [layer, head]) {
  const parts = STATISTICS.slice(0, 7).map(
    ({ name, title }) => `${title.toLowerCase()} ${weightText(statisticOf(overview, name, [layer, head]))}`
  );
  return `Layer ${layer}, head ${head}: ${parts.join(", ")}`;
}
function sortedHeads(heads, rate, descending) {
  const sign = descending ? -1 : 1;
  const rated = heads.map((id) => ({ id, value: rate(id) }));
  rated.sort((a5, b3) => {
    const [x4, y5] = [Number.isNaN(a5.value), Number.isNaN(b3.value)];
    return x4 || y5 ? Number(x4) - Number(y5) : sign * (a5.value - b3.value);
  });
  return rated.map(({ id }) => id);
}

// src/drawing/scatter.ts
var KINDS = ["previous", "next", "self", "special"];
var MARGIN2 = { left: 44, right: 20, top: 16, bottom: 40 };
var LEAST_RANGE = 0.1;
var PADDING = 0.06;
function pointsOf(overview) {
  const size2 = overview.kept.length;
  const share = (name, id) => statisticOf(overview, name, id) / Math.max(limitOf(name, size2), Number.MIN_VALUE) || 0;
  return allHeads(overview).map((id) => {
    const mass = KINDS.map((kind) => statisticOf(overview, kind, id));
    return {
      id,
      x: share("mean_distance", id),
      y: share("entropy", id),
      confidence: statisticOf(overview, "confidence", id) || 0,
      kind: KINDS[mass.indexOf(Math.max(...mass))] ?? KINDS[0]
    };
  });
}
function plotOf(points, width, height) {
  const ends = (numbers2) => {
    const [low, high] = [Math.min(...numbers2), Math.max(...numbers2)];
    const middle = (low + high) / 2;
    const half = Math.max(high - low, LEAST_RANGE) * (0.5 + PADDING);
    return [middle - half, middle + half];
  };
  return { width, height, x: ends(points.map(({ x: x4 }) => x4)), y: ends(points.map(({ y: y5 }) => y5)) };
}
function toPixels({ width, height, x: [x0, x1], y: [y0, y1] }, x4, y5) {
  const across = width - MARGIN2.left - MARGIN2.right;
  const down = height - MARGIN2.top - MARGIN2.bottom;
  return [MARGIN2.left + across * (x4 - x0) / (x1 - x0), MARGIN2.top + down * (y1 - y5) / (y1 - y0)];
}
function radiusOf({ confidence }) {
  return 3 + 6 * Math.sqrt(Math.min(Math.max(confidence, 0), 1));
}
function nearest(plot, points, at, reach = 14) {
  let best2 = null;
  let least = reach;
  for (const point of points) {
    const [x4, y5] = toPixels(plot, point.x, point.y);
    const distance = Math.hypot(x4 - at[0], y5 - at[1]);
    if (distance <= least) [best2, least] = [point, distance];
  }
  return best2;
}
function inBox(plot, points, { x0, y0, x1, y1 }) {
  return points.filter((point) => {
    const [x4, y5] = toPixels(plot, point.x, point.y);
    return x4 >= Math.min(x0, x1) && x4 <= Math.max(x0, x1) && y5 >= Math.min(y0, y1) && y5 <= Math.max(y0, y1);
  });
}
function neighbour(points, from, axis, by) {
  const order = [...points].sort((a5, b3) => a5[axis] - b3[axis]);
  const index = order.findIndex(({ id }) => id[0] === from[0] && id[1] === from[1]);
  return order[index + by] ?? null;
}
function ticks([low, high]) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2].find((one) => (high - low) / one <= 6) ?? 0.5;
  const first = Math.ceil(low / step);
  const count = Math.floor(high / step) - first + 1;
  return Array.from({ length: count }, (_4, i4) => Number(((first + i4) * step).toFixed(2)));
}

// src/views/canvas.ts
function useSize() {
  const element = T2(null);
  const size2 = w2(() => y3({ width: 0, height: 0 }), []);
  A2(() => {
    const observer = new ResizeObserver(([entry]) => {
      const { width, height } = entry.contentRect;
      size2.value = { width: Math.floor(width), height: Math.floor(height) };
    });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [size2]);
  return [element, useComputed(() => size2.value)];
}
function prepare(canvas, { width, height }) {
  const density = Math.min(window.devicePixelRatio || 1, 3);
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  const context = canvas.getContext("2d");
  context.setTransform(density, 0, 0, density, 0, 0);
  return context;
}
function placeIn(element, { clientX, clientY }) {
  const { left, top } = element.getBoundingClientRect();
  return [clientX - left, clientY - top];
}

// src/views/scatterDrawing.ts
var LOOKS = {
  previous: { colour: "#0f7fc4", corners: 3, turn: Math.PI },
  next: { colour: "#d55e00", corners: 3, turn: 0 },
  self: { colour: "#009e73", corners: 4, turn: Math.PI / 4 },
  special: { colour: "#cc79a7", corners: 40, turn: 0 }
};
var KIND_LEGEND = KINDS.map((kind) => ({
  kind,
  colour: LOOKS[kind].colour,
  path: `M${corners(kind, 6).map((corner) => corner.map((one) => one.toFixed(2)).join(" ")).join("L")}Z`
}));
function drawScatter(context, plot, points, chosen, pointed, brush) {
  const { color } = getComputedStyle(context.canvas);
  context.clearRect(0, 0, plot.width, plot.height);
  context.fillStyle = color;
  context.strokeStyle = color;
  context.font = "12px system-ui, sans-serif";
  drawAxes(context, plot);
  const isChosen = ({ id }) => chosen.some((other) => sameHead(other, id));
  for (const point of [...points].sort((a5, b3) => Number(isChosen(a5)) - Number(isChosen(b3)))) {
    drawPoint(context, plot, point, isChosen(point), color);
  }
  const named2 = points.filter((point) => isChosen(point) || point === pointed);
  for (const point of named2.length <= 24 ? named2 : named2.filter((one) => one === pointed)) {
    const [x4, y5] = toPixels(plot, point.x, point.y);
    const name = headName(point.id);
    const left = x4 + radiusOf(point) + 4 + context.measureText(name).width > plot.width;
    context.textAlign = left ? "right" : "left";
    context.fillStyle = color;
    context.fillText(name, x4 + (left ? -1 : 1) * (radiusOf(point) + 4), y5 + 4);
  }
  if (brush !== null) {
    context.globalAlpha = 0.12;
    context.fillRect(brush.x0, brush.y0, brush.x1 - brush.x0, brush.y1 - brush.y0);
    context.globalAlpha = 1;
    context.strokeRect(brush.x0, brush.y0, brush.x1 - brush.x0, brush.y1 - brush.y0);
  }
}
function drawAxes(context, plot) {
  const { width, height, x: x4, y: y5 } = plot;
  const [left, bottom] = toPixels(plot, x4[0], y5[0]);
  const [right, top] = toPixels(plot, x4[1], y5[1]);
  context.lineWidth = 1;
  context.textAlign = "center";
  for (const tick of ticks(x4)) {
    const [at] = toPixels(plot, tick, 0);
    line(context, at, top, at, bottom);
    context.fillText(String(tick), at, bottom + 16);
  }
  context.textAlign = "right";
  for (const tick of ticks(y5)) {
    const [, at] = toPixels(plot, 0, tick);
    line(context, left, at, right, at);
    context.fillText(String(tick), left - 6, at + 4);
  }
  context.fillText("mean distance / longest distance →", width - 20, height - 4);
  context.save();
  context.translate(11, top);
  context.rotate(-Math.PI / 2);
  context.fillText("entropy / largest entropy →", 0, 0);
  context.restore();
}
function drawPoint(context, plot, point, chosen, ink) {
  const [x4, y5] = toPixels(plot, point.x, point.y);
  context.beginPath();
  for (const [dx, dy] of corners(point.kind, radiusOf(point))) context.lineTo(x4 + dx, y5 + dy);
  context.closePath();
  context.globalAlpha = chosen ? 1 : 0.65;
  context.fillStyle = LOOKS[point.kind].colour;
  context.fill();
  context.globalAlpha = 1;
  if (!chosen) return;
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.stroke();
}
function line(context, ...[x0, y0, x1, y1]) {
  context.globalAlpha = 0.15;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.globalAlpha = 1;
}
function corners(kind, radius) {
  const { corners: count, turn } = LOOKS[kind];
  return Array.from({ length: count }, (_4, i4) => {
    const angle = turn + 2 * Math.PI * i4 / count;
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  });
}

// src/views/fingerprints.tsx
var BRUSH_PIXELS = 4;
var STEPS = {
  ArrowRight: ["x", 1],
  ArrowLeft: ["x", -1],
  ArrowUp: ["y", 1],
  ArrowDown: ["y", -1]
};
function FingerprintsView({ overview }) {
  const store = useStore();
  const [frame, size2] = useSize();
  const canvas = T2(null);
  const points = w2(() => pointsOf(overview), [overview]);
  const plot = useComputed(() => plotOf(points, size2.value.width, size2.value.height));
  const brush = useSignal(null);
  const pointed = useSignal(null);
  useSignalEffect(() => {
    if (size2.value.width === 0) return;
    store.dark.value;
    const context = prepare(canvas.current, size2.value);
    drawScatter(context, plot.value, points, store.heads.value, pointed.value, brush.value);
  });
  const at = (event) => placeIn(canvas.current, event);
  const finish = (event) => {
    const box = brush.peek();
    brush.value = null;
    if (box === null) return;
    const moved = Math.max(Math.abs(box.x1 - box.x0), Math.abs(box.y1 - box.y0)) > BRUSH_PIXELS;
    if (moved) {
      store.chooseHeads(inBox(plot.peek(), points, box).map(({ id }) => id));
      store.spoken.value = `${store.heads.value.length} heads chosen.`;
      return;
    }
    const point = nearest(plot.peek(), points, at(event));
    if (point !== null) event.shiftKey ? store.toggleHead(point.id) : store.openHead(point.id);
  };
  const step = (event) => {
    const way = STEPS[event.key];
    if (way === void 0) return;
    event.preventDefault();
    const next = neighbour(points, store.current.value, ...way);
    if (next === null) return;
    if (event.shiftKey) store.chooseHeads([...store.heads.value.filter((id) => !sameHead(id, next.id)), next.id]);
    else store.chooseHeads([next.id]);
    store.spoken.value = headText(overview, next.id);
  };
  return /* @__PURE__ */ a4("div", { class: "fingerprints-view", children: [
    /* @__PURE__ */ a4("div", { class: "view-tools", children: [
      /* @__PURE__ */ a4(Legend, {}),
      /* @__PURE__ */ a4("p", { class: "note", children: "Size: confidence. Drag a box to choose heads; arrow keys step from head to head." })
    ] }),
    /* @__PURE__ */ a4(
      "div",
      {
        class: "scatter",
        ref: frame,
        role: "group",
        tabIndex: 0,
        "aria-label": "Heads by distance and entropy. Right and left arrows step by distance, up and down by entropy.",
        onKeyDown: step,
        onPointerDown: (event) => {
          const [x4, y5] = at(event);
          event.currentTarget.setPointerCapture(event.pointerId);
          brush.value = { x0: x4, y0: y5, x1: x4, y1: y5 };
        },
        onPointerMove: (event) => {
          const [x4, y5] = at(event);
          const box = brush.peek();
          if (box !== null) brush.value = { ...box, x1: x4, y1: y5 };
          else pointed.value = nearest(plot.peek(), points, [x4, y5]);
        },
        onPointerUp: finish,
        onPointerCancel: () => {
          brush.value = null;
        },
        onPointerLeave: () => {
          pointed.value = null;
        },
        onDblClick: (event) => {
          const point = nearest(plot.peek(), points, at(event));
          if (point !== null) store.chooseHeads([point.id]);
        },
        children: /* @__PURE__ */ a4(
          "canvas",
          {
            ref: canvas,
            role: "img",
            "aria-label": `Scatter of ${points.length} heads; ${store.heads.value.length} chosen, the current one ${headName(store.current.value)}. The table has the numbers.`
          }
        )
      }
    ),
    /* @__PURE__ */ a4("p", { class: "note told", children: headText(overview, pointed.value?.id ?? store.current.value) })
  ] });
}
function Legend() {
  return /* @__PURE__ */ a4("ul", { class: "legend", "aria-label": "Shapes", children: KIND_LEGEND.map(({ kind, path, colour }) => /* @__PURE__ */ a4("li", { children: [
    /* @__PURE__ */ a4("svg", { viewBox: "-7 -7 14 14", width: "14", height: "14", "aria-hidden": "true", children: /* @__PURE__ */ a4("path", { d: path, fill: colour }) }),
    "mostly ",
    kind
  ] }, kind)) });
}

// src/drawing/colours.ts
var STOPS = {
  viridis: "44015448186a472d7b4240863b528b33638d2c728e26828e21918c1fa08828ae803fbc735ec96284d44baddc30d8e219fde725",
  cividis: "00224e002e6a1a386f32436d434e6c535a6d61656f6f70737d7c788c88789b9476aba072bcae6ccdbb63dec958f0d846fee838",
  magma: "0000040a08221d114736106b51127c6a1c818326819c2e7fb73779d0416fe75263f56b5cfc8961fea772fec488fde2a3fcfdbf"
};
var COLOURS_IN_MAP = 256;
var LIGHT_PAPER = 255;
var DARK_PAPER = 24;
var LOG_FLOOR = 1e-4;
var maps2 = /* @__PURE__ */ new Map();
function colourMap(choice, dark) {
  const name = choice === "auto" ? dark ? "magma" : "viridis" : choice;
  let map = maps2.get(name);
  if (map === void 0) {
    map = { name, table: interpolated(STOPS[name]) };
    maps2.set(name, map);
  }
  return map;
}
function place(weight, low, high, scale) {
  const share = high > low ? Math.min(Math.max((weight - low) / (high - low), 0), 1) : 0;
  if (scale === "linear") return share;
  if (scale === "sqrt") return Math.sqrt(share);
  return Math.max(0, 1 - Math.log(Math.max(share, LOG_FLOOR)) / Math.log(LOG_FLOOR));
}
function colourAt({ table }, at) {
  const i4 = 3 * Math.round(at * (COLOURS_IN_MAP - 1));
  return [table[i4], table[i4 + 1], table[i4 + 2]];
}
var HIGHLIGHTS = 128;
var highlightsOf = /* @__PURE__ */ new Map();
function highlights(choice, dark) {
  const map = colourMap(choice, dark);
  const key = `${map.name} ${dark}`;
  let all = highlightsOf.get(key);
  if (all === void 0) {
    all = Array.from({ length: HIGHLIGHTS }, (_4, i4) => highlight(map, i4 / (HIGHLIGHTS - 1), dark));
    highlightsOf.set(key, all);
  }
  return all;
}
function highlight(map, at, dark) {
  const colour = colourAt(map, dark ? at : 1 - at);
  const alpha = Math.min(1, 1.6 * at);
  const paper = dark ? DARK_PAPER : LIGHT_PAPER;
  const [r4, g5, b3] = colour.map((c4) => Math.round(alpha * c4 + (1 - alpha) * paper));
  const ink = luminance(r4, g5, b3) > 0.179 ? "#000" : "#fff";
  return { background: at === 0 ? "transparent" : `rgb(${r4}, ${g5}, ${b3})`, ink };
}
function luminance(r4, g5, b3) {
  const [x4, y5, z3] = [r4, g5, b3].map((c4) => c4 / 255 <= 0.04045 ? c4 / 255 / 12.92 : ((c4 / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x4 + 0.7152 * y5 + 0.0722 * z3;
}
function paint(weights, pixels, map, low, high, scale) {
  const words = new Uint32Array(pixels.buffer, pixels.byteOffset, weights.length);
  const ink = packed(map);
  const steps = placesOf(scale);
  const factor = high > low ? (steps.length - 1) / (high - low) : 0;
  const last = steps.length - 1;
  for (let i4 = 0; i4 < weights.length; i4++) {
    const step = (weights[i4] - low) * factor;
    words[i4] = ink[steps[step > last ? last : step > 0 ? step | 0 : 0]];
  }
}
function rangeOf(weights, signed) {
  let low = signed ? Infinity : 0;
  let high = signed ? -Infinity : 0;
  for (const weight of weights) {
    if (weight < low) low = weight;
    if (weight > high) high = weight;
  }
  return low <= high ? [low, high] : [0, 0];
}
var STEPS2 = 4096;
var places = /* @__PURE__ */ new Map();
var inks = /* @__PURE__ */ new Map();
function placesOf(scale) {
  let table = places.get(scale);
  if (table === void 0) {
    table = Uint8Array.from(
      { length: STEPS2 },
      (_4, i4) => Math.round(place(i4, 0, STEPS2 - 1, scale) * (COLOURS_IN_MAP - 1))
    );
    places.set(scale, table);
  }
  return table;
}
function packed(map) {
  let ink = inks.get(map);
  if (ink === void 0) {
    const bytes = new Uint8ClampedArray(4 * COLOURS_IN_MAP).fill(255);
    for (let i4 = 0; i4 < COLOURS_IN_MAP; i4++) bytes.set(map.table.subarray(3 * i4, 3 * i4 + 3), 4 * i4);
    ink = new Uint32Array(bytes.buffer);
    inks.set(map, ink);
  }
  return ink;
}
function interpolated(stops) {
  const given = stops.match(/../g).map((hex) => Number.parseInt(hex, 16));
  const intervals = given.length / 3 - 1;
  const table = new Uint8Array(3 * COLOURS_IN_MAP);
  for (let i4 = 0; i4 < COLOURS_IN_MAP; i4++) {
    const at = i4 / (COLOURS_IN_MAP - 1) * intervals;
    const stop = Math.min(Math.floor(at), intervals - 1);
    for (let c4 = 0; c4 < 3; c4++) {
      const [from, to] = [given[3 * stop + c4], given[3 * stop + 3 + c4]];
      table[3 * i4 + c4] = Math.round(from + (at - stop) * (to - from));
    }
  }
  return table;
}

// src/views/mapCanvas.tsx
function MapCanvas({ weights, signed, label }) {
  const store = useStore();
  const canvas = T2(null);
  const drawn = T2(() => void 0);
  drawn.current = () => {
    const { colours, scale } = store.fields;
    drawMap(canvas.current, weights, signed, colourMap(colours.value, store.dark.value), scale.value);
  };
  useSignalEffect(() => drawn.current());
  const first = T2(true);
  A2(() => {
    if (!first.current) drawn.current();
    first.current = false;
  }, [weights, signed]);
  return label === void 0 ? /* @__PURE__ */ a4("canvas", { ref: canvas, class: "map", "aria-hidden": "true" }) : /* @__PURE__ */ a4("canvas", { ref: canvas, class: "map", role: "img", "aria-label": label });
}
function drawMap(canvas, weights, signed, ...[map, scale]) {
  const size2 = Math.round(Math.sqrt(weights.length));
  if (size2 === 0) return;
  if (canvas.width !== size2) {
    canvas.width = size2;
    canvas.height = size2;
  }
  const image = new ImageData(size2, size2);
  paint(weights, image.data, map, ...rangeOf(weights, signed), scale);
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// src/views/headPanel.tsx
function HeadPanel({ overview }) {
  const store = useStore();
  const id = store.headsOf(overview).at(-1);
  const map = useComputed(() => currentMap(store, overview));
  const { weights } = overview.subject;
  const name = weights === "rollout" ? `Rollout through layer ${id[0]}` : headName(id);
  return /* @__PURE__ */ a4("aside", { class: "head-panel", children: [
    /* @__PURE__ */ a4("h2", { children: name }),
    map.value !== null && /* @__PURE__ */ a4(MapCanvas, { weights: map.value, signed: weights === "score", label: `Map of ${headText(overview, id)}` }),
    /* @__PURE__ */ a4("dl", { children: STATISTICS.slice(0, 7).map(({ name: statistic, title, told: told2 }) => /* @__PURE__ */ a4("div", { title: told2, children: [
      /* @__PURE__ */ a4("dt", { children: title }),
      /* @__PURE__ */ a4("dd", { children: weightText(statisticOf(overview, statistic, id)) })
    ] }, statistic)) }),
    /* @__PURE__ */ a4(
      "button",
      {
        type: "button",
        onClick: () => {
          store.fields.view.value = "text";
        },
        children: "Show in the text"
      }
    )
  ] });
}
function currentMap(store, overview) {
  const [layer, head] = store.headsOf(overview).at(-1);
  const limit = store.info.value?.limits.max_response_bytes ?? Number.POSITIVE_INFINITY;
  if (fitsWhole(overview.tokens, overview.heads, limit)) {
    const maps3 = store.loader.layer(overview.subject, layer).value;
    if (maps3.state === "ready") return mapOf(maps3.value, head);
  }
  const { thumbnails: thumbnails2, subject } = overview;
  return subject.weights === "rollout" ? null : thumbnails2?.row(layer, head) ?? null;
}

// src/views/heads.tsx
function HeadsView({ overview }) {
  const { cells } = useStore().fields;
  const statistic = STATISTICS.find(({ name }) => name === cells.value) ?? null;
  const shown2 = statistic ?? (overview.thumbnails === null ? STATISTICS[0] : null);
  return /* @__PURE__ */ a4("div", { class: "heads-view", children: [
    /* @__PURE__ */ a4("div", { class: "heads-main", children: [
      /* @__PURE__ */ a4("div", { class: "view-tools", children: [
        /* @__PURE__ */ a4("label", { children: [
          /* @__PURE__ */ a4("span", { children: "Cells show" }),
          /* @__PURE__ */ a4(
            "select",
            {
              value: shown2?.name ?? "maps",
              onChange: ({ currentTarget }) => {
                cells.value = currentTarget.value;
              },
              children: [
                overview.thumbnails !== null && /* @__PURE__ */ a4("option", { value: "maps", children: "maps" }),
                STATISTICS.map(({ name, title }) => /* @__PURE__ */ a4("option", { value: name, children: title.toLowerCase() }, name))
              ]
            }
          )
        ] }),
        /* @__PURE__ */ a4("p", { class: "note", children: [
          shown2 === null ? "Each map has its own range of colours." : `${shown2.title}: ${shown2.told}.`,
          " Click opens a head, Shift-click adds it, a double click leaves it alone."
        ] })
      ] }),
      /* @__PURE__ */ a4(Grid, { overview, statistic: shown2 })
    ] }),
    /* @__PURE__ */ a4(HeadPanel, { overview })
  ] });
}
function Grid({ overview, statistic }) {
  const store = useStore();
  const grid = T2(null);
  const reached = useSignal(store.current.peek());
  const chosen = store.heads.value;
  const move = (event, [layer, head]) => {
    const [down, right] = STEPS3[event.key] ?? [0, 0];
    if (down === 0 && right === 0) return;
    event.preventDefault();
    const next = [layer + down, head + right];
    grid.current.querySelector(`[data-head="${next}"]`)?.focus();
  };
  return /* @__PURE__ */ a4("div", { class: "scroll", children: /* @__PURE__ */ a4("table", { class: "grid", ref: grid, "aria-label": "Heads, a row for each layer", children: [
    /* @__PURE__ */ a4("thead", { children: /* @__PURE__ */ a4("tr", { children: [
      /* @__PURE__ */ a4("td", {}),
      numbers(overview.heads).map((head) => /* @__PURE__ */ a4("th", { scope: "col", children: [
        "H",
        head
      ] }, head))
    ] }) }),
    /* @__PURE__ */ a4("tbody", { children: numbers(overview.layers).map((layer) => /* @__PURE__ */ a4("tr", { children: [
      /* @__PURE__ */ a4("th", { scope: "row", children: [
        "L",
        layer
      ] }),
      numbers(overview.heads).map((head) => {
        const id = [layer, head];
        return /* @__PURE__ */ a4("td", { children: /* @__PURE__ */ a4(
          "button",
          {
            type: "button",
            "data-head": id,
            class: statistic === null ? "cell" : "cell value",
            "aria-pressed": chosen.some((other) => sameHead(other, id)),
            "aria-current": sameHead(store.current.value, id),
            "aria-label": headText(overview, id),
            title: headName(id),
            tabIndex: sameHead(reached.value, id) ? 0 : -1,
            onFocus: () => {
              reached.value = id;
            },
            onClick: ({ shiftKey }) => shiftKey ? store.toggleHead(id) : store.openHead(id),
            onDblClick: () => store.chooseHeads([id]),
            onKeyDown: (event) => move(event, id),
            children: statistic === null ? /* @__PURE__ */ a4(Thumbnail, { overview, id }) : /* @__PURE__ */ a4(Value, { overview, id, name: statistic.name })
          }
        ) }, head);
      })
    ] }, layer)) })
  ] }) });
}
var STEPS3 = {
  ArrowDown: [1, 0],
  ArrowUp: [-1, 0],
  ArrowRight: [0, 1],
  ArrowLeft: [0, -1]
};
function Thumbnail({ overview, id }) {
  const weights = overview.thumbnails.row(...id);
  return /* @__PURE__ */ a4(MapCanvas, { weights, signed: overview.subject.weights === "score" });
}
function Value({ overview, id, name }) {
  const store = useStore();
  const value = statisticOf(overview, name, id);
  const inks2 = highlights(store.fields.colours.value, store.dark.value);
  const share = value / (limitOf(name, overview.kept.length) || 1);
  const { background, ink } = inks2[Math.round(Math.min(Math.max(share || 0, 0), 1) * (inks2.length - 1))];
  return /* @__PURE__ */ a4("span", { style: { backgroundColor: background, color: ink }, children: weightText(value) });
}
function numbers(count) {
  return Array.from({ length: count }, (_4, i4) => i4);
}

// src/views/table.tsx
function TableView({ overview }) {
  const store = useStore();
  const { sort } = store.fields;
  const descending = sort.value.startsWith("-");
  const by = STATISTICS.find(({ name }) => name === sort.value.replace(/^-/, ""))?.name ?? null;
  const heads = by === null ? allHeads(overview) : sortedHeads(allHeads(overview), (id) => statisticOf(overview, by, id), descending);
  const chosen = store.heads.value;
  return /* @__PURE__ */ a4($, { children: [
    /* @__PURE__ */ a4("p", { class: "note table-note", children: "Means over all rows of the probabilities. Click a title to sort; click a head to open it, Shift-click to add it." }),
    /* @__PURE__ */ a4("div", { class: "scroll", children: /* @__PURE__ */ a4("table", { class: "heads-table", children: [
      /* @__PURE__ */ a4("caption", { class: "unseen", children: "Statistics of all heads" }),
      /* @__PURE__ */ a4("thead", { children: /* @__PURE__ */ a4("tr", { children: [
        /* @__PURE__ */ a4("th", { scope: "col", "aria-sort": by === null ? "ascending" : "none", children: /* @__PURE__ */ a4(
          "button",
          {
            type: "button",
            class: "quiet",
            onClick: () => {
              sort.value = "";
            },
            children: "Head"
          }
        ) }),
        STATISTICS.map(({ name, title, told: told2 }) => /* @__PURE__ */ a4(SortHeader, { name, title, told: told2, by, descending }, name))
      ] }) }),
      /* @__PURE__ */ a4("tbody", { children: heads.map((id) => /* @__PURE__ */ a4("tr", { class: chosen.some((other) => sameHead(other, id)) ? "chosen" : "", children: [
        /* @__PURE__ */ a4("th", { scope: "row", children: /* @__PURE__ */ a4(
          "button",
          {
            type: "button",
            class: "quiet",
            "aria-pressed": chosen.some((other) => sameHead(other, id)),
            onClick: ({ shiftKey }) => shiftKey ? store.toggleHead(id) : store.openHead(id),
            children: headName(id)
          }
        ) }),
        STATISTICS.map(({ name }) => /* @__PURE__ */ a4("td", { class: "number", children: weightText(statisticOf(overview, name, id)) }, name))
      ] }, headName(id))) })
    ] }) })
  ] });
}
function SortHeader({ name, title, told: told2, by, descending }) {
  const { sort } = useStore().fields;
  const order = by !== name ? "none" : descending ? "descending" : "ascending";
  return /* @__PURE__ */ a4("th", { scope: "col", class: "number", "aria-sort": order, title: told2, children: /* @__PURE__ */ a4(
    "button",
    {
      type: "button",
      class: "quiet",
      onClick: () => {
        sort.value = order === "descending" ? name : `-${name}`;
      },
      children: [
        title,
        /* @__PURE__ */ a4("span", { "aria-hidden": "true", children: order === "none" ? "" : descending ? " ↓" : " ↑" })
      ]
    }
  ) });
}

// src/data/weights.ts
var SMALL = 1 << 18;
function weightsOf(loader, overview, wanted) {
  const total = new Float32Array(overview.kept.length);
  const heads = overview.subject.weights === "rollout" ? wanted.heads.slice(-1) : wanted.heads;
  let waiting = false;
  for (const [layer, head] of heads) {
    for (const position of wanted.positions) {
      const row2 = headRow(loader, overview, layer, head, position, wanted);
      if (row2.state === "failed") return row2;
      if (row2.state === "loading") waiting = true;
      else add(total, row2.value, 1 / heads.length);
    }
  }
  return waiting ? { state: "loading" } : ready(total);
}
function headRow(loader, { subject, kept, heads, indexOf }, layer, head, position, { direction, whole: whole3, rows }) {
  if (whole3) {
    const maps3 = loader.layer(subject, layer).value;
    if (maps3.state === "ready") return ready(rowOf(maps3.value, head, indexOf.get(position), direction));
    if (maps3.state === "failed" || !rows || heads * kept.length ** 2 <= SMALL) return maps3;
  }
  const row2 = loader.row(subject, layer, position, direction).value;
  return row2.state === "ready" ? ready(rowAmong(row2.value, head)) : row2;
}
function ready(value) {
  return { state: "ready", value };
}
function add(total, row2, factor) {
  for (let i4 = 0; i4 < total.length; i4++) total[i4] = total[i4] + factor * row2[i4];
}

// src/views/active.ts
var NOTHING = { positions: [], weights: null, error: null };
function activeWeights(store, overview) {
  const heads = store.headsOf(overview);
  const pinned = store.pinned.value;
  const hovered = store.hovered.value;
  const limit = store.info.value?.limits.max_response_bytes ?? Number.POSITIVE_INFINITY;
  const whole3 = fitsWhole(overview.tokens, overview.heads, limit);
  const pointed = hovered !== null && whole3 && overview.indexOf.has(hovered) ? [hovered] : [];
  const positions = pinned.length > 0 ? pinned : pointed;
  if (positions.length === 0) {
    if (whole3) store.loader.layer(overview.subject, heads.at(-1)[0]).value;
    return NOTHING;
  }
  const loaded = weightsOf(store.loader, overview, {
    heads,
    positions,
    direction: store.fields.direction.value,
    whole: whole3,
    rows: pinned.length > 0
  });
  if (loaded.state === "ready") return { positions, weights: loaded.value, error: null };
  return { positions, weights: null, error: loaded.state === "failed" ? loaded.error : null };
}

// src/views/rowTable.tsx
var SHOWN2 = 12;
function RowTable({ overview, store }) {
  const all = useSignal(false);
  const active = useComputed(() => activeWeights(store, overview));
  const { positions, weights, error } = active.value;
  if (positions.length === 0) {
    return /* @__PURE__ */ a4("aside", { class: "row-table", children: /* @__PURE__ */ a4("p", { class: "note", children: "Point at a token to see its weights. Click to pin it; Shift-click adds another." }) });
  }
  const order = weights === null ? [] : largest(weights, all.value ? weights.length : SHOWN2);
  const most = weights === null || order.length === 0 ? 0 : weights[order[0]];
  return /* @__PURE__ */ a4("aside", { class: "row-table", "aria-busy": weights === null && error === null, children: [
    /* @__PURE__ */ a4("table", { children: [
      /* @__PURE__ */ a4("caption", { children: /* @__PURE__ */ a4(Caption, { overview, store, positions }) }),
      /* @__PURE__ */ a4("thead", { children: /* @__PURE__ */ a4("tr", { children: [
        /* @__PURE__ */ a4("th", { scope: "col", children: "Position" }),
        /* @__PURE__ */ a4("th", { scope: "col", children: overview.subject.level === "word" ? "Word" : "Token" }),
        /* @__PURE__ */ a4("th", { scope: "col", class: "number", children: "Weight" }),
        /* @__PURE__ */ a4("td", {})
      ] }) }),
      /* @__PURE__ */ a4("tbody", { children: order.map((i4) => /* @__PURE__ */ a4("tr", { children: [
        /* @__PURE__ */ a4("td", { class: "number faint", children: overview.kept[i4].position }),
        /* @__PURE__ */ a4("td", { class: "label", children: overview.kept[i4].label }),
        /* @__PURE__ */ a4("td", { class: "number", children: weightText(weights[i4]) }),
        /* @__PURE__ */ a4("td", { class: "bar", "aria-hidden": "true", children: /* @__PURE__ */ a4(Bar, { share: most > 0 ? Math.max(0, weights[i4] / most) : 0 }) })
      ] }, i4)) })
    ] }),
    error !== null && /* @__PURE__ */ a4("p", { class: "problem", children: sentence(error) }),
    weights !== null && weights.length > SHOWN2 && /* @__PURE__ */ a4(
      "button",
      {
        type: "button",
        class: "quiet",
        onClick: () => {
          all.value = !all.value;
        },
        children: all.value ? `Show the largest ${SHOWN2}` : `Show all ${weights.length.toLocaleString("en")}`
      }
    )
  ] });
}
function Bar({ share }) {
  return /* @__PURE__ */ a4("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true", children: /* @__PURE__ */ a4("rect", { width: 100 * share, height: "8" }) });
}
function Caption({ overview, store, positions }) {
  const names = positions.map((position) => `“${overview.units[position].label}”`).join(" + ");
  const heads = store.headsOf(overview);
  const { weights } = overview.subject;
  const [layer] = heads.at(-1);
  const where = weights === "rollout" ? `rollout through layer ${layer}` : heads.length === 1 ? headName(heads[0]) : `mean of ${heads.length} heads`;
  return /* @__PURE__ */ a4($, { children: [
    store.fields.direction.value === "from" ? "From " : "Into ",
    /* @__PURE__ */ a4("strong", { children: names }),
    /* @__PURE__ */ a4("span", { children: where })
  ] });
}

// src/views/text.tsx
function TextView({ overview }) {
  const store = useStore();
  return /* @__PURE__ */ a4("div", { class: "text-view", children: [
    /* @__PURE__ */ a4("div", { children: [
      /* @__PURE__ */ a4("div", { class: "view-tools", children: [
        /* @__PURE__ */ a4(Directions, {}),
        /* @__PURE__ */ a4(Find, { units: overview.units })
      ] }),
      /* @__PURE__ */ a4(TokenList, { overview }),
      overview.truncated && /* @__PURE__ */ a4("p", { class: "note", children: [
        "The input was cut: the model reads ",
        overview.tokens.toLocaleString("en"),
        " of",
        " ",
        overview.originalLength.toLocaleString("en"),
        " tokens."
      ] })
    ] }),
    /* @__PURE__ */ a4(RowTable, { overview, store })
  ] });
}
function Directions() {
  const { direction } = useStore().fields;
  return /* @__PURE__ */ a4("fieldset", { class: "switch", children: [
    /* @__PURE__ */ a4("legend", { class: "unseen", children: "Direction" }),
    ["from", "to"].map((value) => /* @__PURE__ */ a4("label", { children: [
      /* @__PURE__ */ a4(
        "input",
        {
          type: "radio",
          name: "direction",
          checked: direction.value === value,
          onChange: () => {
            direction.value = value;
          }
        }
      ),
      /* @__PURE__ */ a4("span", { children: value === "from" ? "where it looks" : "what looks at it" })
    ] }, value))
  ] });
}
function Find({ units }) {
  const store = useStore();
  const missing = useSignal(false);
  const last = T2(-1);
  const find = (input) => {
    const wanted = input.value.trim().toLowerCase();
    if (wanted === "") return;
    const after = last.current + 1;
    const ordered = [...units.slice(after), ...units.slice(0, after)];
    const found = ordered.find(({ label, token }) => `${label} ${token}`.toLowerCase().includes(wanted));
    missing.value = found === void 0;
    if (found === void 0) store.spoken.value = `No token contains ${wanted}.`;
    else {
      last.current = found.position;
      focusToken(input, found.position);
    }
  };
  return /* @__PURE__ */ a4("label", { class: "finder", children: [
    /* @__PURE__ */ a4("span", { class: "unseen", children: "Find a token" }),
    /* @__PURE__ */ a4(
      "input",
      {
        class: "find",
        type: "search",
        placeholder: "Find a token  /",
        "aria-invalid": missing.value,
        onInput: () => {
          missing.value = false;
        },
        onKeyDown: (event) => {
          if (event.key === "Enter") find(event.currentTarget);
          if (event.key === "Escape") event.currentTarget.blur();
        }
      }
    )
  ] });
}
function focusToken(near, position) {
  near.closest(".view")?.querySelector(`[data-position="${position}"]`)?.focus();
}
function TokenList({ overview }) {
  const store = useStore();
  const list2 = T2(null);
  const reached = useSignal(0);
  const active = useComputed(() => activeWeights(store, overview));
  useSignalEffect(() => {
    const { weights, positions } = active.value;
    paintTokens(store, list2.current, overview, weights, positions);
  });
  useSignalEffect(() => {
    const pinned = new Set(store.pinned.value);
    for (const element of tokensOf(list2.current)) {
      element.setAttribute("aria-selected", String(pinned.has(Number(element.dataset["position"]))));
    }
  });
  useSignalEffect(() => {
    const pinned = store.pinned.value;
    const { weights } = active.value;
    if (pinned.length > 0 && weights !== null) store.spoken.value = told(overview, pinned, weights);
  });
  const at = (event) => {
    const token = event.target.closest("[data-position]");
    return token === null ? null : Number(token.dataset["position"]);
  };
  const pin = (event) => {
    const position = at(event);
    if (position === null || !overview.indexOf.has(position)) return;
    store.pin(position, event.shiftKey);
  };
  const move = (event) => {
    const position = at(event);
    const last = overview.units.length - 1;
    const next = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (position === null) return;
    if (event.key === "Enter" || event.key === " ") pin(event);
    else if (event.key === "Home") focusToken(list2.current, 0);
    else if (event.key === "End") focusToken(list2.current, last);
    else if (next !== void 0) focusToken(list2.current, Math.min(Math.max(position + next, 0), last));
    else return;
    event.preventDefault();
  };
  return /* @__PURE__ */ a4(
    "div",
    {
      class: "tokens",
      ref: list2,
      role: "listbox",
      "aria-multiselectable": "true",
      "aria-label": overview.subject.level === "word" ? "Words" : "Tokens",
      onClick: pin,
      onKeyDown: move,
      onPointerOver: (event) => {
        const position = at(event);
        if (event.pointerType !== "mouse" || position === null) return;
        store.hovered.value = position;
        const weight = active.peek().weights?.[overview.indexOf.get(position) ?? -1];
        event.target.title = weight === void 0 ? "" : weightText(weight);
      },
      onPointerLeave: () => {
        store.hovered.value = null;
      },
      onFocusIn: (event) => {
        reached.value = at(event) ?? 0;
        store.hovered.value = at(event);
      },
      onFocusOut: () => {
        store.hovered.value = null;
      },
      children: /* @__PURE__ */ a4(Tokens, { units: overview.units, kept: overview.indexOf, reached: reached.value })
    }
  );
}
function Tokens(props) {
  return props.units.map((unit, i4) => /* @__PURE__ */ a4($, { children: [
    unit.broken && /* @__PURE__ */ a4("br", {}),
    i4 > 0 && unit.segment !== props.units[i4 - 1].segment && /* @__PURE__ */ a4("hr", { class: "between" }),
    unit.spaced && !unit.broken && " ",
    /* @__PURE__ */ a4(
      "span",
      {
        role: "option",
        "aria-selected": "false",
        "aria-disabled": !props.kept.has(unit.position),
        class: unit.special ? "token special" : "token",
        "data-position": unit.position,
        tabIndex: unit.position === props.reached ? 0 : -1,
        children: unit.label
      }
    )
  ] }, unit.position));
}
var looks = /* @__PURE__ */ new WeakMap();
function paintTokens(store, list2, { indexOf, subject }, weights, positions) {
  const dark = store.dark.value;
  const colours = store.fields.colours.value;
  const inks2 = highlights(colours, dark);
  const scale = store.fields.scale.value;
  const [low, high] = weights === null ? [0, 0] : rangeOf(weights, subject.weights === "score");
  const active = new Set(positions);
  for (const element of tokensOf(list2)) {
    const position = Number(element.dataset["position"]);
    const index = indexOf.get(position);
    const weight = weights === null || index === void 0 ? null : weights[index];
    const at = weight === null ? 0 : place(weight, low, high, scale);
    element.classList.toggle("active", active.has(position));
    const look = `${weight === null ? "" : Math.round(at * (inks2.length - 1))} ${dark} ${colours}`;
    if (looks.get(element) === look) continue;
    looks.set(element, look);
    const { background, ink } = inks2[Math.round(at * (inks2.length - 1))];
    element.style.backgroundColor = background;
    element.style.color = weight === null ? "" : ink;
    element.style.boxShadow = at > 0.05 ? `inset 0 -${Math.round(4 * at)}px 0 0 currentColor` : "";
  }
}
function tokensOf(list2) {
  return list2.getElementsByClassName("token");
}
function told({ units, kept }, pinned, weights) {
  const names = pinned.map((position) => units[position].label).join(" and ");
  const best2 = largest(weights, 3).map((i4) => `${kept[i4].label} ${weightText(weights[i4])}`);
  return `${names} pinned. Largest weights: ${best2.join(", ")}.`;
}

// src/views/index.ts
var VIEWS = [
  { name: "text", title: "Text", View: TextView },
  { name: "heads", title: "All heads", View: HeadsView },
  { name: "fingerprints", title: "Fingerprints", View: FingerprintsView },
  { name: "table", title: "Table", View: TableView }
];

// src/layout/Welcome.tsx
function Welcome() {
  const store = useStore();
  return /* @__PURE__ */ a4("section", { class: "welcome", children: [
    /* @__PURE__ */ a4("h2", { children: "Where does a token look?" }),
    /* @__PURE__ */ a4("p", { children: "Enter a text above, or start from one of these." }),
    /* @__PURE__ */ a4("ul", { children: EXAMPLES.map(({ title, text: text2, pair }) => /* @__PURE__ */ a4("li", { children: /* @__PURE__ */ a4("button", { type: "button", onClick: () => store.enter(text2, pair), children: [
      /* @__PURE__ */ a4("strong", { children: title }),
      /* @__PURE__ */ a4("span", { children: text2 }),
      pair !== null && /* @__PURE__ */ a4("span", { children: pair })
    ] }) }, title)) })
  ] });
}

// src/layout/ViewPanel.tsx
function ViewPanel() {
  const store = useStore();
  const { view } = store.fields;
  const chosen = VIEWS.find(({ name }) => name === view.value) ?? VIEWS[0];
  const overview = store.overview.value;
  const shown2 = store.shown.value;
  if (overview === null) return store.model.value === null ? null : /* @__PURE__ */ a4(Welcome, {});
  const move = (by) => {
    const next = VIEWS[(VIEWS.indexOf(chosen) + by + VIEWS.length) % VIEWS.length];
    view.value = next.name;
    document.getElementById(`tab-${next.name}`)?.focus();
  };
  return /* @__PURE__ */ a4("section", { class: "views", children: [
    /* @__PURE__ */ a4("div", { class: "tabs", role: "tablist", "aria-label": "Views", children: VIEWS.map(({ name, title }) => /* @__PURE__ */ a4(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-selected": name === chosen.name,
        "aria-controls": "view",
        tabIndex: name === chosen.name ? 0 : -1,
        onClick: () => {
          view.value = name;
        },
        onKeyDown: ({ key }) => {
          if (key === "ArrowRight") move(1);
          if (key === "ArrowLeft") move(-1);
        },
        children: title
      },
      name
    )) }),
    /* @__PURE__ */ a4("div", { id: "view", class: `view view-${chosen.name}`, role: "tabpanel", "aria-labelledby": `tab-${chosen.name}`, children: [
      shown2 !== null && /* @__PURE__ */ a4(chosen.View, { overview: shown2 }, chosen.name),
      overview.state === "loading" && /* @__PURE__ */ a4("p", { class: "note", children: "Loading…" })
    ] })
  ] });
}

// src/layout/App.tsx
function App({ store }) {
  const root = T2(null);
  A2(() => followKeys(store, root.current), [store]);
  useSignalEffect(() => {
    document.documentElement.dataset["headlightTheme"] = store.dark.value ? "dark" : "light";
  });
  return /* @__PURE__ */ a4(StoreContext.Provider, { value: store, children: /* @__PURE__ */ a4("div", { class: "headlight", ref: root, "data-theme": store.dark.value ? "dark" : "light", children: [
    /* @__PURE__ */ a4(Header, {}),
    /* @__PURE__ */ a4("main", { children: [
      /* @__PURE__ */ a4(Inputs, {}),
      /* @__PURE__ */ a4(Problems, {}),
      /* @__PURE__ */ a4(Controls, {}),
      /* @__PURE__ */ a4(ViewPanel, {})
    ] }),
    /* @__PURE__ */ a4(Footer, {}),
    /* @__PURE__ */ a4(Help, {}),
    /* @__PURE__ */ a4(KeyDialog, {}),
    /* @__PURE__ */ a4("div", { class: "unseen", role: "status", "aria-live": "polite", children: store.spoken })
  ] }) });
}

// src/state/fragment.ts
var VERSION = "1.";
var MAX_BYTES = 4 << 20;
async function toFragment(state) {
  const json = JSON.stringify(changedFields(state));
  if (json === "{}") return "";
  const packed2 = await piped(new TextEncoder().encode(json), new CompressionStream("deflate-raw"), Infinity);
  return VERSION + toBase64(packed2);
}
async function fromFragment(fragment) {
  const content = fragment.replace(/^#/, "");
  if (!content.startsWith(VERSION)) return parseState(null);
  try {
    const packed2 = fromBase64(content.slice(VERSION.length));
    const json = await piped(packed2, new DecompressionStream("deflate-raw"), MAX_BYTES);
    return parseState(JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(json)));
  } catch {
    return parseState(null);
  }
}
async function piped(bytes, through, most) {
  const writer = through.writable.getWriter();
  const written = writer.write(bytes).then(() => writer.close());
  written.catch(() => void 0);
  const pieces = [];
  let size2 = 0;
  const reader = through.readable.getReader();
  for (; ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    size2 += value.length;
    if (size2 > most) {
      await reader.cancel();
      throw new RangeError(`it has more than ${most} bytes`);
    }
    pieces.push(value);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}
function toBase64(bytes) {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
function fromBase64(text2) {
  const binary = atob(text2.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

// src/state/history.ts
var STEP_MS = 250;
async function followAddress(store) {
  const read = async () => store.restore(await fromFragment(location.hash));
  await read();
  let timer;
  let first = true;
  const stop = x2(() => {
    const state = store.state.value;
    clearTimeout(timer);
    if (first) {
      first = false;
      return;
    }
    timer = setTimeout(async () => {
      const fragment = await toFragment(state);
      if (store.state.peek() !== state || fragment === location.hash.slice(1)) return;
      history.pushState(null, "", fragment === "" ? location.pathname + location.search : `#${fragment}`);
    }, STEP_MS);
  });
  addEventListener("popstate", read);
  addEventListener("hashchange", read);
  return () => {
    stop();
    clearTimeout(timer);
    removeEventListener("popstate", read);
    removeEventListener("hashchange", read);
  };
}

// src/main.ts
function mount(element, source, state = {}) {
  const store = new Store(source, { ...initialState(), ...state });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    store.systemDark.value = dark.matches;
  };
  follow();
  dark.addEventListener("change", follow);
  Q(k(App, { store }), element);
  void store.readInfo();
  return {
    store,
    unmount: () => {
      dark.removeEventListener("change", follow);
      Q(null, element);
    }
  };
}
var page = document.getElementById("headlight-explorer");
if (page !== null) {
  const { store } = mount(page, new HttpSource(new URL(".", document.baseURI).href));
  void followAddress(store);
}
export {
  HttpSource,
  mount
};
